r"""Singular values along a family of square matrices: derivatives, paths, crossings and zeros.

The families are :math:`M + \rho I`, a layer with a skip (Riedi 2022, section 4), and more generally :math:`A + t B`.
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
    """Singular values along a family: in descending order at each parameter, and as branches.

    Each branch is followed through crossings, where some of the singular values meet, and zeros, where one vanishes.
    """

    ordered: Float[Tensor, "t n"]
    branches: Float[Tensor, "t n"]
    crossings: Float[Tensor, " c"]
    zeros: Float[Tensor, " z"]


def derivatives(matrix: Float[Tensor, "n n"]) -> Float[Tensor, " n"]:
    r"""Return the derivative of each singular value of :math:`M + \rho I` at :math:`\rho = 0`, in descending order.

    It is the cosine of the angle between the right and left singular vectors (Riedi 2022, Lemma 14). A singular value
    that is zero or repeated is refused: its vectors are not unique.
    """
    point = _Point(_Family(matrix, None), 0.0)
    if point.groups:
        first, last, vanishes = point.groups[0]
        which = f"value {first + 1} is zero" if vanishes else f"values {first + 1} to {last} are equal"
        raise ValueError(f"Singular {which}; one_sided_derivatives returns those from the left and from the right.")
    return point.slopes


def one_sided_derivatives(matrix: Float[Tensor, "n n"], direction: Float[Tensor, "n n"] | None = None) -> OneSided:
    r"""Return the derivatives from both sides of the ordered singular values of :math:`A + t B` at :math:`t = 0`.

    Let the columns of U and V be the singular vectors of all singular values equal to s. If :math:`s > 0`, those from
    the right are the eigenvalues of the symmetric part of :math:`V^\top B U` in descending order, and those from the
    left the same in ascending order. If :math:`s = 0`, they are its singular values, and from the left their opposites
    (theorem "One-sided derivatives" of the claims). The two sides agree where a singular value is simple and not zero.
    Singular values count as equal, or as zero, up to :math:`\sqrt\varepsilon` times the largest.
    """
    point = _Point(_Family(matrix, direction), 0.0)
    return OneSided(point.left, point.slopes)


def zeros(matrix: Float[Tensor, "n n"]) -> Float[Tensor, " z"]:
    r"""Return all :math:`\rho`, ascending, at which :math:`M + \rho I` is singular.

    They are the opposites of the real eigenvalues of M, each listed once (Riedi 2022, Lemma 20, as far as it holds).
    An eigenvalue counts as real if its real part makes M singular within rounding, and two as one if everything
    between them does; a defective one has fewer digits than others.
    """
    family = _Family(matrix, None)

    def singular(rho: Tensor) -> bool:
        s = torch.linalg.svdvals(family.matrix + rho * family.direction)
        return bool(s[-1] <= 10 * len(s) * EPS * torch.maximum(s[0], rho.abs()))

    found: list[Tensor] = []
    for rho in (-torch.linalg.eigvals(family.matrix).real).sort().values:
        if singular(rho) and not (found and singular((found[-1] + rho) / 2)):
            found.append(rho)
    return torch.stack(found) if found else family.matrix.new_empty(0)


def follow(
    matrix: Float[Tensor, "n n"], parameters: Float[Tensor, " t"], direction: Float[Tensor, "n n"] | None = None
) -> Paths:
    r"""Return the singular values of :math:`A + t B` along an interval, in order and as branches.

    Where singular values meet, or one vanishes, their derivatives jump. Each interval between parameters is divided
    until the derivatives from inside agree at its ends, up to an eighth of the norm of B: all jumps are then at ends.
    Where some meet, the order of their branches is reversed; where one vanishes, its branch changes sign. Branches that
    only touch (whose slopes differ by less than 1e-4 of the norm of B) stay on their sides. What happens twice between
    neighbouring parameters, there and back, can be missed: take more of them. Where singular values meet is found up to
    :math:`\sqrt\varepsilon` times the largest, over the difference of their slopes. The branches agree with the ordered
    singular values at the first parameter.
    """
    family = _Family(matrix, direction)
    points = [_Point(family, t) for t in as_float64(parameters, "parameters").tolist()]
    between = (_between(family, *pair) for pair in itertools.pairwise(points))
    meetings = _meetings([points[0], *(p for added, q in zip(between, points[1:], strict=True) for p in [*added, q])])
    position, sign, ahead = (
        torch.arange(len(points[0].s), device=points[0].s.device),
        torch.ones_like(points[0].s),
        list(meetings),
    )
    branches = []
    for point in points:
        while ahead and ahead[0][0].parameter < point.parameter:
            passing, group = ahead.pop(0)
            new_position, new_sign = passing.turn(group)
            position, sign = new_position[position], sign * new_sign[position]
        branches.append(sign * point.s[position])
    crossings, vanishing = (
        sign.new_tensor([point.parameter for point, group in meetings if group.vanishes == vanishes])
        for vanishes in (False, True)
    )
    return Paths(
        ordered=torch.stack([point.s for point in points]),
        branches=torch.stack(branches),
        crossings=crossings,
        zeros=vanishing,
    )


class _Family:
    """The matrices A and B, and the norm of B, which no slope exceeds."""

    def __init__(self, matrix: Tensor, direction: Tensor | None) -> None:
        self.matrix = as_float64(matrix, "matrix")
        if direction is None:
            direction = torch.eye(len(matrix), device=matrix.device)
        self.direction = as_float64(direction, "direction")
        self.size = torch.linalg.matrix_norm(self.direction, 2)


class _Group(NamedTuple):
    """Positions, in the order, of singular values that are equal; they may be zero. One alone that is not is none."""

    start: int
    stop: int
    vanishes: bool

    def is_part_of(self, groups: list["_Group"]) -> bool:
        """Return whether the same are equal, and zero if these are, in another list."""
        return any(
            other.start <= self.start and self.stop <= other.stop and self.vanishes <= other.vanishes
            for other in groups
        )


class _Point:
    """Singular values s at one parameter, their groups, and the slopes of the branches.

    Within a group the slopes descend, as do the singular values to the right of the point; `left` holds them in the
    order of the singular values to the left.
    """

    def __init__(self, family: _Family, parameter: float) -> None:
        self.parameter, self.size = parameter, family.size
        v, self.s, uh = torch.linalg.svd(family.matrix + parameter * family.direction)
        u, b = uh.mT, family.direction
        self.groups = _groups(self.s)
        self.slopes = (v * (b @ u)).sum(0)
        self.left = self.slopes.clone()
        for start, stop, vanishes in self.groups:
            block = v[:, start:stop].mT @ b @ u[:, start:stop]
            slopes = torch.linalg.svdvals(block) if vanishes else torch.linalg.eigvalsh((block + block.mT) / 2).flip(0)
            self.slopes[start:stop] = slopes
            self.left[start:stop] = -slopes if vanishes else slopes.flip(0)

    def passes(self, group: _Group) -> bool:
        """Return whether branches of the group go through each other, or through zero, rather than touch or agree."""
        slopes = self.slopes[group.start : group.stop]
        return bool(slopes[0] - (0 if group.vanishes else slopes[-1]) > 1e-4 * self.size)

    def turn(self, group: _Group) -> tuple[Tensor, Tensor]:
        """Return where each position of the order leads to in passing the point, and with which sign."""
        position, sign = torch.arange(len(self.s), device=self.s.device), torch.ones_like(self.s)
        each = slice(group.start, group.stop)
        if group.vanishes:
            sign[each] = torch.ones_like(self.s[each]).where(self.slopes[each] <= 1e-4 * self.size, -1)
        elif self.passes(group):
            position[each] = position[each].flip(0)
        return position, sign


def _groups(s: Float[Tensor, " n"]) -> list[_Group]:
    """Group singular values so close that their vectors have fewer than half the digits of double precision."""
    tiny = EPS**0.5 * s[0]
    cuts = [0, *(torch.nonzero(s[:-1] - s[1:] > tiny).flatten() + 1).tolist(), len(s)]
    groups = [_Group(*pair, bool(s[pair[0]] <= tiny)) for pair in itertools.pairwise(cuts)]
    return [group for group in groups if group.vanishes or group.stop - group.start > 1]


def _meetings(points: list[_Point]) -> list[tuple[_Point, _Group]]:
    """Return where singular values meet each other or zero; those that are equal all along do not meet."""
    before = [points[min(1, len(points) - 1)], *points]
    return [
        (point, group)
        for point, other in zip(points, before, strict=False)
        for group in point.groups
        if point.passes(group) or not group.is_part_of(other.groups)
    ]


def _between(family: _Family, left: _Point, right: _Point, depth: int = 0) -> list[_Point]:
    """Return points between two others, in ascending order, such that all kinks between these are among them."""
    jump = (right.left - left.slopes).abs()
    closing = _closing(left, right)
    width = right.parameter - left.parameter
    if jump.max() <= family.size / 8 and not closing.any():
        return []
    i = int((jump + closing * jump.max()).argmax())
    at = width / 2
    if depth % 2 == 0 and jump[i] > 0:  # where the tangents of singular value i meet; else bisect, for safety
        guess = ((right.s[i] - left.s[i] - right.left[i] * width) / (left.slopes[i] - right.left[i])).item()
        at = guess if 0 < guess < width else at
    middle = _Point(family, left.parameter + at)
    if not left.parameter < middle.parameter < right.parameter:
        return []
    return [*_between(family, left, middle, depth + 1), middle, *_between(family, middle, right, depth + 1)]


def _closing(left: _Point, right: _Point) -> Tensor:
    """Return which gaps may close in between: they fall at the left, rise at the right, and their tangents meet low."""
    fall, rise = -_gaps(left.slopes), _gaps(right.left)
    before, after = _gaps(left.s), _gaps(right.s)
    width = right.parameter - left.parameter
    lowest = (before * rise + after * fall - fall * rise * width) / (fall + rise)
    return (fall > 0) & (rise > 0) & (lowest <= torch.minimum(before, after) / 2)


def _gaps(values: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Return the distance of each value to the next, and of the last to zero."""
    return values - torch.cat([values[1:], values.new_zeros(1)])
