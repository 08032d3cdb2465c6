r"""Singular values of :math:`M + \rho I`, a layer with a skip (Riedi 2022, section 4): slopes, crossings and zeros.

In descending order the singular values are continuous, with kinks where two of them meet and where one vanishes. The
*branches*, which pass through both and may become negative, have no kinks.
"""

import itertools
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import EPS, as_float64


class OneSided(NamedTuple):
    """Derivatives of the singular values, in descending order of these, from the left and from the right."""

    left: Float[Tensor, " n"]
    right: Float[Tensor, " n"]


class Paths(NamedTuple):
    """Singular values in descending order at each parameter, as branches, where some meet, and where one vanishes."""

    ordered: Float[Tensor, "t n"]
    branches: Float[Tensor, "t n"]
    crossings: Float[Tensor, " c"]
    zeros: Float[Tensor, " z"]


def derivatives(matrix: Float[Tensor, "n n"]) -> Float[Tensor, " n"]:
    r"""Return the derivative of each singular value of :math:`M + \rho I` at :math:`\rho = 0`, in descending order.

    It is the cosine of the angle between the right and left singular vectors (Riedi 2022, Lemma 14). Where a singular
    value has none, being zero or repeated, it is refused.
    """
    left, right = one_sided_derivatives(matrix)
    if not torch.equal(left, right):
        raise ValueError("A singular value is zero or repeated; one_sided_derivatives has both sides.")
    return right


def one_sided_derivatives(matrix: Float[Tensor, "n n"], direction: Float[Tensor, "n n"] | None = None) -> OneSided:
    r"""Return the derivatives from both sides of the ordered singular values of :math:`A + t B` at :math:`t = 0`.

    They are those of the theorem "One-sided derivatives" of the claims. The two sides agree where a singular value is
    simple and not zero. They count as equal, or as zero, up to :math:`\sqrt\varepsilon` times the largest.
    """
    a = as_float64(matrix, "matrix")
    b = torch.eye(len(a), dtype=a.dtype, device=a.device) if direction is None else as_float64(direction, "direction")
    v, s, uh = torch.linalg.svd(a)
    right = (v * (b @ uh.mT)).sum(0)
    left, tiny = right.clone(), EPS**0.5 * s[0]
    cuts = [0, *(torch.nonzero(s[:-1] - s[1:] > tiny).flatten() + 1).tolist(), len(s)]
    for start, stop in itertools.pairwise(cuts):
        block = v[:, start:stop].mT @ b @ uh[start:stop].mT
        if s[start] <= tiny:
            right[start:stop] = torch.linalg.svdvals(block)
            left[start:stop] = -right[start:stop]
        elif stop - start > 1:
            right[start:stop] = torch.linalg.eigvalsh((block + block.mT) / 2).flip(0)
            left[start:stop] = right[start:stop].flip(0)
    return OneSided(left, right)


def zeros(matrix: Float[Tensor, "n n"]) -> Float[Tensor, " z"]:
    r"""Return all :math:`\rho`, ascending, at which :math:`M + \rho I` is singular.

    They are the opposites of the real eigenvalues of M, each listed once (Riedi 2022, Lemma 20, as far as it holds): of
    those whose real part makes M singular within rounding, and two as one if everything between them does.
    """
    m = as_float64(matrix, "matrix")
    eye = torch.eye(len(m), dtype=m.dtype, device=m.device)

    def singular(rho: Tensor) -> bool:
        s = torch.linalg.svdvals(m + rho * eye)
        return bool(s[-1] <= 10 * len(s) * EPS * torch.maximum(s[0], rho.abs()))

    found: list[Tensor] = []
    for rho in (-torch.linalg.eigvals(m).real).sort().values:
        if singular(rho) and not (found and singular((found[-1] + rho) / 2)):
            found.append(rho)
    return torch.stack(found) if found else m.new_empty(0)


def follow(matrix: Float[Tensor, "n n"], parameters: Float[Tensor, " t"]) -> Paths:
    r"""Return the singular values of :math:`M + \rho I` along an interval, in order and as branches.

    Those of a symmetric matrix are the moduli of :math:`\lambda_i + \rho`, straight lines that cross. Those of others
    meet in special positions alone, not looked for; the last branch changes sign with the determinant.
    """
    m, t = as_float64(matrix, "matrix"), as_float64(parameters, "parameters")
    moved = m + t[:, None, None] * torch.eye(len(m), dtype=m.dtype, device=m.device)
    ordered, crossings = torch.linalg.svdvals(moved), t.new_empty(0)
    if torch.equal(m, m.mT):
        values = torch.linalg.eigvalsh(m)
        lines = values + t[:, None]
        branches = (lines * _signs(lines[0]))[:, lines[0].abs().argsort(descending=True)]
        apart = values[:, None] > values + EPS**0.5 * values.abs().max()
        crossings = (-(values[:, None] + values) / 2)[apart].unique()
    else:
        signs = _signs(torch.linalg.det(moved))
        branches = torch.cat([ordered[:, :-1], ordered[:, -1:] * (signs * signs[0])[:, None]], 1)
    crossings, vanishing = (at[(t[0] <= at) & (at <= t[-1])] for at in (crossings, zeros(m)))
    return Paths(ordered, branches, crossings, vanishing)


def _signs(values: Tensor) -> Tensor:
    """Return 1 or -1 each; zero is none of the negative."""
    return torch.ones_like(values).where(values >= 0, -1)
