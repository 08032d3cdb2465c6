r"""Units of ReLU networks on a line, followed group by group: a step costs little, however many they are.

A unit :math:`\max(w x + b, 0)` is active on one side of its kink :math:`-b/w`. Units with kinks between the same two
of n samples, and which rise towards the same side, are active on the same samples: there are :math:`2 (n + 1)` groups.
In a group, a step of gradient descent takes each unit :math:`s = (w, b, v)`, with v its weights in the outputs, to
:math:`(I + D) s` with one matrix D. So it takes the second moments :math:`\sum s s^\top` of the group to
:math:`(I + D) \sum s s^\top (I + D)^\top`, and outputs and tangent kernel need nothing else of its units.

But units move from group to group. Those that might, in the next steps, are followed one by one.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

CHUNK = 2**13
"""Units at a time, so that results for them stay in the cache."""

AHEAD = 16
"""Steps as long as the one that is due, within which no unit can change its group but those that are followed."""

FAR = 4.0
"""Times as far as that one may have looked ahead: as steps become shorter, fewer units have to be followed."""


class Crowd:
    r"""Units of networks on a line, with one set of samples for each run.

    A unit is *settled* if :math:`|w x + b| > \rho |s|` at the two samples x beside its kink; at the first and the last
    one if its kink is beyond all of them. It remains active on the same samples while :math:`\|a (P - I)\| \le \rho`
    for :math:`a = (x, 1, 0)`, where P is the product of all :math:`I + D` of its group since it was looked at. Before a
    step that would go beyond that, all units are brought up to date. The line has the samples from left to right.
    """

    def __init__(self, units: Float[Tensor, "runs e m"], line: Float[Tensor, "runs n"]) -> None:
        self._units, self._line = units.transpose(0, 1).flatten(1), line
        around = torch.cat([line[:, -1:], line, line[:, :1]], 1)  # a kink may leave to the left and come from the right
        self._beside = torch.stack([around[:, :-1], around[:, 1:]]).repeat(1, 1, 2).flatten(1)
        self._one = torch.eye(len(self._units), dtype=line.dtype, device=line.device)
        self._look(line.new_zeros(len(line)))

    def units(self) -> Float[Tensor, "runs e m"]:
        """Return all units as they are now."""
        self._catch_up()
        self._look(self._reach)
        return self._units.unflatten(1, (len(self._line), -1)).transpose(0, 1)

    def moments(self) -> Float[Tensor, "runs groups e e"]:
        """Return sums over each group, those that rise first and in the order of the line."""
        sums = self._settled
        for units, groups in self._followed_now():
            sums = sums + self._sums(units, groups)
        return sums.unflatten(0, (len(self._line), -1))

    def step(self, moves: Float[Tensor, "runs groups 2 k"]) -> None:
        """Add D s to each unit s: to w and b the products of v with two vectors of its group, and to v the reverse."""
        moves = moves.flatten(0, 1)
        increments = pad(moves, (2, 0, 0, moves.shape[2]))
        increments = increments + increments.mT
        factors, reach = self._one + increments, AHEAD * self._drift(increments)
        lag = factors @ self._lag
        if (self._drift(lag - self._one) > self._reach).any() or (self._reach > FAR * reach).all():
            self._catch_up()
            self._look(reach)
            lag = factors
        self._lag, self._settled = lag, factors @ self._settled @ factors.mT
        table = moves.permute(1, 2, 0).contiguous()
        for units, groups in self._followed_now():
            (w, b), v = units[:2].clone(), units[2:]
            slope, value = table[:, :, groups]
            units[:2] += torch.stack([(v * slope).sum(0), (v * value).sum(0)])
            v += w * slope + b * value
        self._few_groups = self._groups_of_few()

    def _catch_up(self) -> None:
        """Bring all units up to date, but not the groups they are in."""
        lag = self._lag.permute(1, 2, 0).contiguous()
        for part, _ in self._parts():
            units = self._units[:, part]
            units.copy_((lag[:, :, self._groups[part]] * units).sum(1))
        self._units[:, self._few] = self._followed

    def _look(self, reach: Float[Tensor, " runs"]) -> None:
        """Sort all units into groups, and find those that are not settled."""
        groups, loose, settled = [], [], 0.0
        for part, run in self._parts():
            units = self._units[:, part]
            group = self._groups_on(run, *units[:2])
            margin = (units[0] * self._beside[:, group] + units[1]).abs().amin(0)
            near = margin <= reach[run] * units.square().sum(0).sqrt()
            settled = settled + self._sums(units * ~near, group)
            groups.append(group)
            loose.append(near)
        self._reach, self._groups, self._settled = reach, torch.cat(groups), settled
        self._lag = self._one.expand_as(settled)
        self._few = torch.cat(loose).nonzero()[:, 0]
        self._followed, self._few_groups = self._units[:, self._few], self._groups[self._few]

    def _groups_on(self, run: int, w: Float[Tensor, " c"], b: Float[Tensor, " c"]) -> Int[Tensor, " c"]:
        """Return the number of samples to the left of each kink, and n + 1 more for a unit that falls."""
        line, size = self._line[run], self._line.shape[1] + 1
        return torch.searchsorted(line, -b / w) + size * torch.signbit(w) + 2 * size * run

    def _groups_of_few(self) -> Int[Tensor, " few"]:
        runs = (self._few // (self._units.shape[1] // len(self._line))).bincount(minlength=len(self._line)).tolist()
        parts = self._followed[:2].split(runs, 1)
        return torch.cat([self._groups_on(run, *part) for run, part in enumerate(parts)])

    def _sums(self, units: Float[Tensor, "e c"], groups: Int[Tensor, " c"]) -> Float[Tensor, "all_groups e e"]:
        """Return the second moments of each group of these units."""
        products = (units[:, None] * units).flatten(0, 1)
        sums = products.new_zeros(len(products), self._beside.shape[1])
        return sums.scatter_add_(1, groups.expand_as(products), products).mT.unflatten(1, self._one.shape)

    def _drift(self, change: Float[Tensor, "all_groups e e"]) -> Float[Tensor, " runs"]:
        rows = self._beside[..., None] * change[:, 0] + change[:, 1]
        return torch.linalg.vector_norm(rows, dim=-1).amax(0).view(len(self._line), -1).amax(1)

    def _parts(self) -> Iterator[tuple[slice, int]]:
        """Yield units of one run, as many as the cache holds, and which run it is."""
        runs, count = len(self._line), self._units.shape[1] // len(self._line)
        for run in range(runs):
            for start in range(run * count, (run + 1) * count, CHUNK):
                yield slice(start, min(start + CHUNK, (run + 1) * count)), run

    def _followed_now(self) -> Iterator[tuple[Float[Tensor, "e c"], Int[Tensor, " c"]]]:
        """Yield the units that are followed, and their groups, as many as the cache holds."""
        return zip(self._followed.split(CHUNK, 1), self._few_groups.split(CHUNK), strict=True)
