r"""One hidden layer of ReLUs on samples that lie on a line: a step costs :math:`O(m)`, whatever their number.

A unit :math:`\max(w x + b, 0)` is active on one side of its kink :math:`-b/w`. Units with kinks between the same two of
n samples, and which rise towards the same side, are active on the same samples: there are :math:`2 (n + 1)` groups of
units, and outputs, tangent kernel and gradients need nothing of the units but sums over each group.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from gnlib.chapters.when_the_kernel_moves.networks import StackedNetworks, shallow

CHUNK = 2**15
"""Units at a time, so that what is computed from them stays in the cache."""


class Groups(NamedTuple):
    """Samples on a line, and the units of each run by the samples on which they are active.

    Attributes
    ----------
    x
        the samples
    order
        their numbers, from left to right
    groups
        of each unit: the number of samples to the left of its kink, and n + 1 more for a unit that falls
    outputs
        of the networks
    """

    x: Float[Tensor, "runs n"]
    order: Int[Tensor, "runs n"]
    groups: Int[Tensor, "runs m"]
    outputs: Float[Tensor, "runs n k"]


class OnALine(StackedNetworks):
    r"""Networks :math:`f = V \max(w x + b, 0) / \sqrt m` of one number x, one for each run.

    They compute what :class:`gnlib.chapters.when_the_kernel_moves.networks.StackedNetworks` does with the same weights,
    but for rounding, and for samples that lie on a kink. On a GPU sums are taken in no fixed order.

    Parameters
    ----------
    hidden
        w and b, of shape (runs, m, 2); copied, in double precision
    last
        V, of shape (runs, k, m)

    Raises
    ------
    ValueError
        Weights that do not fit; and in a pass, samples that are not of the form (x, 1).
    """

    def __init__(self, hidden: Tensor, last: Tensor) -> None:
        super().__init__([hidden, last], [1.0, last.shape[-1] ** -0.5], [torch.relu])
        if hidden.shape[2] != 2:
            raise ValueError(
                f"hidden has shape {tuple(hidden.shape)}; (runs, m, 2), a weight and a bias, was expected."
            )

    def passes(self, x: Float[Tensor, "*runs n d"]) -> Groups:
        """Return the outputs, and the groups of units that make them."""
        if x.shape[-1] != 2 or not (x[..., 1] == 1).all():
            raise ValueError(f"x has shape {tuple(x.shape)}; samples (x, 1) on a line were expected.")
        x = x[..., 0].expand(len(self), -1).contiguous()
        line, order = x.sort()
        w, b = self.weights[0].detach().unbind(-1)
        groups = torch.searchsorted(line, -b / w) + (x.shape[1] + 1) * torch.signbit(w)
        rising, falling = self._sums(groups, x.shape[1], lambda w, b, v: [w * v, b * v])
        slopes, values = (rising + falling).take_along_dim(_ranks(order)[:, None], -1).chunk(2, 1)
        return Groups(x, order, groups, self.factors[1] * (slopes * x[:, None] + values).mT)

    @torch.no_grad()
    def step(self, passes: Groups, slopes: Float[Tensor, "runs n k"], rates: Float[Tensor, " runs"]) -> None:
        """Take a step of gradient descent, in place, as networks of any shape do."""
        moves = -self.factors[1] * rates[:, None, None] * slopes.mT
        moves = torch.cat([moves * passes.x[:, None], moves], 1).take_along_dim(passes.order[:, None], -1)
        to_the_right, to_the_left = _from_here_on(pad(moves, (0, 1))), pad(moves, (1, 0)).cumsum(-1)
        active = torch.cat([to_the_right, to_the_left], -1)  # sums over the samples on which a group is active
        for group, hidden, v in self._chunks(passes.groups):
            along, constant = active.gather(-1, group[:, None].expand(-1, active.shape[1], -1)).chunk(2, 1)
            w, b = hidden.clone().mT.split(1, 1)
            hidden += torch.stack([(v * along).sum(1), (v * constant).sum(1)], -1)
            v += w * along + b * constant

    @torch.no_grad()
    def kernel(self, x: Float[Tensor, "*runs n d"]) -> Float[Tensor, "runs nk nk"]:
        """Return the tangent kernels, with row `i * k + a` for output a on sample i.

        A unit is active on both of two samples if it rises and has its kink to the left of the left one, or if it falls
        and has it to the right of the right one.
        """
        x, order, groups, outputs = self.passes(x)
        runs, n, k = outputs.shape
        rising, falling = self._sums(
            groups, n, lambda w, b, v: [w * w, w * b, b * b, (v[:, :, None] * v[:, None]).flatten(1, 2)]
        )
        pairs = _ranks(order)[:, :, None], _ranks(order)[:, None]
        left, right = (extreme(*pairs).view(runs, 1, n * n) for extreme in (torch.minimum, torch.maximum))
        both = (rising.take_along_dim(left, -1) + falling.take_along_dim(right, -1)).view(runs, -1, n, n)
        ww, wb, bb, vv = both.split([1, 1, 1, k * k], 1)
        xs, zs = x[:, None, :, None], x[:, None, None]
        total = ((xs * zs + 1) * vv).view(runs, k, k, n, n)
        total.diagonal(dim1=1, dim2=2).add_((xs * zs * ww + (xs + zs) * wb + bb).movedim(1, -1))
        return self.factors[1] ** 2 * total.permute(0, 3, 1, 4, 2).reshape(runs, n * k, n * k)

    def only(self, runs: Sequence[int]) -> "OnALine":
        """Return copies of some of the networks."""
        return OnALine(*(w.detach()[list(runs)] for w in self.weights))

    def _sums(
        self, groups: Int[Tensor, "runs m"], samples: int, terms: Callable[[Tensor, Tensor, Tensor], Sequence[Tensor]]
    ) -> tuple[Float[Tensor, "runs c n"], Float[Tensor, "runs c n"]]:
        """Return sums of terms over the rising and the falling units active on each sample, from left to right."""
        sums = 0.0
        for group, hidden, v in self._chunks(groups):
            w, b = hidden.mT.split(1, 1)
            values = torch.cat(list(terms(w, b, v)), 1)
            empty = values.new_zeros(*values.shape[:2], 2 * (samples + 1))
            sums = sums + empty.scatter_add(2, group[:, None].expand_as(values), values)
        return sums[..., :samples].cumsum(-1), _from_here_on(sums[..., samples + 2 :])

    def _chunks(self, groups: Int[Tensor, "runs m"]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield groups and weights of some units at a time."""
        for start in range(0, groups.shape[1], CHUNK):
            some = slice(start, start + CHUNK)
            yield groups[:, some], self.weights[0][:, some], self.weights[1][:, :, some]


def shallow_on_a_line(width: int, outputs: int = 3, *, seeds: Sequence[int]) -> OnALine:
    """Draw the networks that :func:`gnlib.chapters.when_the_kernel_moves.networks.shallow` draws, with ReLUs.

    Parameters
    ----------
    width
        m, number of hidden units
    outputs
        number k
    seeds
        one for each network
    """
    return OnALine(*(w.detach() for w in shallow(width, outputs, seeds=seeds).weights))


def _ranks(order: Int[Tensor, "runs n"]) -> Int[Tensor, "runs n"]:
    """Return the place of each sample in an order."""
    return order.argsort()


def _from_here_on(values: Float[Tensor, "*runs n"]) -> Float[Tensor, "*runs n"]:
    """Return sums of each entry and all after it."""
    return values.flip(-1).cumsum(-1).flip(-1)
