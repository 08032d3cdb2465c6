r"""Both ends of the spectrum of :math:`\sum_\ell C_\ell \otimes S_\ell`, without forming it.

The operator is close to :math:`I \otimes M` with :math:`M = \sum_\ell \tfrac{\operatorname{tr} C_\ell}{k} S_\ell`,
whose inverse, shifted close to its smallest eigenvalue, preconditions the lower end, and whose extreme eigenvectors,
times the k unit vectors, start the iteration.
With two terms of which the last has :math:`C_2 = I`, diagonalising :math:`C_1` leaves the blocks
:math:`\mu_i S_1 + S_2`, ordered as the :math:`\mu_i` are: their eigenvectors are exact, and the iteration only
verifies them. All of it happens in the eigenbasis of the second moment of the data, where badly conditioned factors are
graded, not rounded: an eigenvalue far below `eps` times the largest keeps its digits.
"""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import as_float64
from gnlib.operators import KroneckerSum, apply_kronecker_sum
from gnlib.spectrum.davidson import extreme_eigenpair
from gnlib.spectrum.graded import graded_ends
from gnlib.spectrum.result import ConditionNumber

EPS = torch.finfo(torch.float64).eps
EXACT = "exact blocks"
SMALL = 300  # size up to which forming the matrix is faster than iterating, and safe from the rounding of a projection
SHIFT = 0.9  # of the smallest eigenvalue of M: the closer to 1 the faster, and the sooner M is not definite any more


def kronecker_sum_ends(op: KroneckerSum, *, tolerance: float, max_steps: int) -> ConditionNumber:
    """Return both ends of the spectrum of a Kronecker sum of positive semi-definite factors."""
    left, right = as_float64(op.left, "left"), as_float64(op.right, "right")
    present = left.flatten(1).any(1) & right.flatten(1).any(1)
    if not present.any():
        raise ValueError("The operator is zero: it has no eigenvalue to divide by. Check the weights and the data.")
    left, right = left[present], right[present]
    k, r = left.shape[1], right.shape[1]
    identity = torch.eye(r, dtype=left.dtype, device=left.device)
    if k * r <= SMALL:
        return graded_ends(KroneckerSum(left, right, identity).dense())
    weight = left.diagonal(dim1=1, dim2=2).mean(1)
    mean = torch.einsum("l,lij->ij", weight, right)
    cholesky, failed = torch.linalg.cholesky_ex(mean)
    u, v = _kernel(left[0]), _kernel(right[-1])
    definite = not (failed or torch.linalg.cholesky_ex(left[-1]).info or torch.linalg.cholesky_ex(right[0]).info)
    if not (definite and _is_null(left, right, u, v)):  # no network, or one with vanishing products: rank unknown
        return graded_ends(KroneckerSum(left, right, identity).dense())

    # The operator is at least `slack` times I kron M. So a residual measured by the inverse of the shifted M bounds the
    # RELATIVE distance to an eigenvalue, however far below the largest one it lies. Where some factor on the left is
    # singular, the smallest slack that is not zero is a fair guess and no proof, and nothing is shifted.
    ratio = torch.linalg.eigvalsh(left) / weight[:, None]
    regular = ratio > k * EPS * ratio.max()
    slack = ratio[regular].min()
    lowest, directions = torch.linalg.eigh(mean)
    shift = SHIFT * lowest[0].clamp_min(0) * regular.all()
    shifted, failed = torch.linalg.cholesky_ex(mean - shift * identity)
    if failed:
        shift, shifted = torch.zeros_like(shift), cholesky

    def matrices(x: Float[Tensor, "kr b"]) -> Float[Tensor, "b k r"]:
        return x.mT.reshape(-1, k, r)

    def columns(x: Float[Tensor, "*shape r"]) -> Float[Tensor, "kr b"]:
        return x.reshape(-1, k * r).mT

    def apply(x: Float[Tensor, "kr b"]) -> Float[Tensor, "kr b"]:
        return columns(apply_kronecker_sum(left, right, matrices(x)))

    def project(x: Float[Tensor, "kr b"]) -> Float[Tensor, "kr b"]:
        z = matrices(x)
        return columns(z - u @ (u.mT @ z @ v) @ v.mT)

    def solve(x: Float[Tensor, "kr b"]) -> Float[Tensor, "kr b"]:
        z = matrices(x).reshape(-1, r)
        return project(columns(torch.cholesky_solve(z.mT, shifted).mT))

    def errors_above(values: Tensor, residual: Tensor, _: Tensor) -> Tensor:
        norms = torch.linalg.vector_norm(residual, dim=0)
        return torch.where(norms <= EPS * values[0], 0, norms / values.abs())

    def errors_below(values: Tensor, residual: Tensor, solved: Tensor) -> Tensor:
        return ((residual * solved).sum(0).clamp_min(0) / (slack * (values - slack * shift))).sqrt()

    def without_kernel(x: Float[Tensor, "kr b"]) -> Float[Tensor, "kr b"]:
        return apply(x) + top.value * (x - project(x))  # null vectors are eigenvectors of the upper end now

    find = partial(extreme_eigenpair, tolerance=tolerance, max_steps=max_steps)
    first, last, method = _starts(left, right, directions, v.shape[1])
    if method == EXACT:
        first, last = columns(first), columns(last)
    else:  # columns that meet every invariant subspace, for an end that lies off the guess
        generator = torch.Generator(left.device).manual_seed(0)
        blind = torch.randn(4, k, r, generator=generator, dtype=left.dtype, device=left.device)
        # unsmoothed, the rounding of their large components would drown a graded lower end
        smooth = matrices(solve(solve(solve(columns(blind)))))
        smooth = smooth / torch.linalg.matrix_norm(smooth, keepdim=True)
        first, last = columns(torch.cat([first, blind])), solve(columns(torch.cat([last, smooth])))
    top = find(apply, first, largest=True, precondition=project, errors=errors_above)
    bottom = find(without_kernel, last, largest=False, precondition=solve, errors=errors_below, norm=top.value)

    # What rounding of the factors moves: |X| weighted by bounds of their entries, |C_ij| <= c_i c_j, |S_ab| <= s_a s_b.
    c, s = (factor.diagonal(dim1=1, dim2=2).clamp_min(0).sqrt() for factor in (left, right))
    rounding = EPS * torch.einsum("li,ir,lr->l", c, bottom.vector.reshape(k, r).abs(), s).square().sum().item()
    return ConditionNumber(
        largest=top.value,
        smallest=bottom.value,
        rank=k * r - u.shape[1] * v.shape[1],
        gap=bottom.value / (EPS * top.value),
        residual=max(top.error, bottom.error + rounding / bottom.value),
        method=f"{method}, {top.steps} and {bottom.steps} steps",
    )


def _kernel(matrix: Float[Tensor, "q q"]) -> Float[Tensor, "q a"]:
    values, vectors = torch.linalg.eigh(matrix)
    return vectors[:, values <= len(values) * EPS * values[-1]]


def _is_null(left: Tensor, right: Tensor, u: Float[Tensor, "k a"], v: Float[Tensor, "r b"]) -> bool:
    r"""Say whether the operator vanishes on the matrices :math:`U Z V^\top`.

    For a linear network these are :math:`\{X : A_1^\top X = 0, X B_L^\top = 0\}`, and its whole null space unless
    products of layers in between lose more rank than their widths say. There are none unless a layer is narrower than
    both k and r.
    """
    inside = [
        torch.linalg.matrix_norm(u.mT @ c @ u) * torch.linalg.matrix_norm(v.mT @ s @ v)
        for c, s in zip(left, right, strict=True)
    ]
    whole = torch.linalg.matrix_norm(left) * torch.linalg.matrix_norm(right)
    return bool(max(inside) <= right.shape[1] * EPS * whole.max())


def _starts(
    left: Float[Tensor, "L k k"], right: Float[Tensor, "L r r"], directions: Float[Tensor, "r r"], kernel: int
) -> tuple[Float[Tensor, "b k r"], Float[Tensor, "c k r"], str]:
    """First search spaces for the upper and the lower end, as batches of matrices."""
    unit = torch.eye(left.shape[1], dtype=left.dtype, device=left.device)
    if len(left) == 2 and torch.equal(left[1], unit):
        mu, q = torch.linalg.eigh(left[0])
        zeros = int((mu <= len(mu) * EPS * mu[-1]).sum())
        # the smallest eigenvalue is in the block of the smallest mu, or of the smallest that is not zero
        lowest = [i for i in {0, zeros} if i < len(mu)]
        top = _eigenvector(mu[-1] * right[0] + right[1], -1)
        bottom = [_eigenvector(mu[i] * right[0] + right[1], kernel if i < zeros else 0) for i in lowest]
        return torch.outer(q[:, -1], top)[None], torch.einsum("ki,ir->ikr", q[:, lowest], torch.stack(bottom)), EXACT
    ends = [directions[:, -1], directions[:, 0]]
    if kernel:  # the lowest directions of M may all be null for some outputs
        ends.append(torch.linalg.eigh(right[-1]).eigenvectors[:, kernel])
    top, *bottom = (torch.einsum("ij,r->ijr", unit, end) for end in ends)
    return top, torch.cat(bottom), EXACT if len(left) == 1 else "block iteration"


def _eigenvector(matrix: Float[Tensor, "r r"], index: int) -> Float[Tensor, " r"]:
    """Eigenvector of that number; the first one by inverse iteration, as accurate as a graded matrix allows."""
    vector = torch.linalg.eigh(matrix).eigenvectors[:, index]
    if index == 0:
        factor = torch.linalg.cholesky(matrix)
        for _ in range(3):
            vector = torch.cholesky_solve(vector[:, None], factor)[:, 0]
            vector = vector / vector.norm()
    return vector
