"""Three clusters on a line (Liu 2020, appendix B), and ReLU networks on them, from moments of groups of units."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from gnbook.when_the_kernel_moves.crowd import Crowd
from gnbook.when_the_kernel_moves.networks import StackedNetworks, shallow

CENTRES = (0.0, 10.0, -10.0)
"""Means of the three classes; their standard deviation is one."""


def three_clusters(seeds: Sequence[int], samples: int = 60) -> tuple[Float[Tensor, "s n 1"], Float[Tensor, "s n 3"]]:
    """Draw samples and one-hot targets, a set for each seed (Liu 2020, Eq. 42)."""
    sets = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        labels = torch.randint(3, (samples,), generator=generator, device=generator.device)
        noise = torch.randn(samples, generator=generator, dtype=torch.float64, device=generator.device)
        x = noise + noise.new_tensor(CENTRES)[labels]
        sets.append((x[:, None], torch.nn.functional.one_hot(labels, 3).double()))
    x, targets = zip(*sets, strict=True)
    return torch.stack(x), torch.stack(targets)


def with_one(x: Float[Tensor, "*runs n d"]) -> Float[Tensor, "*runs n e"]:
    """Append an entry of one to each sample: the weights that meet it are biases."""
    return torch.cat([x, torch.ones_like(x[..., :1])], -1)


class LinePasses(NamedTuple):
    """Samples on a line, and the outputs of networks on them."""

    x: Float[Tensor, "runs n 2"]  # the samples, each with its entry of one
    order: Int[Tensor, "runs n"]  # their numbers, from left to right
    outputs: Float[Tensor, "runs n k"]


class OnALine(StackedNetworks):
    r"""Networks :math:`f = V \max(w x + b, 0) / \sqrt m` of one number x, one for each run.

    They compute the same as :class:`gnbook.when_the_kernel_moves.networks.StackedNetworks` with these weights, but for
    rounding, and for samples that lie on a kink: :mod:`gnbook.when_the_kernel_moves.crowd` says how. Autograd does not
    see through them. On a GPU sums are taken in no fixed order. `hidden` has w and b, of shape (runs, m, 2), and `last`
    is V, of shape (runs, k, m).
    """

    def __init__(self, hidden: Tensor, last: Tensor) -> None:
        super().__init__([hidden, last], [1.0, last.shape[-1] ** -0.5], [torch.relu])
        self._crowd: tuple[Tensor, Crowd] | None = None  # samples, and all units as they are on these

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._modules["weights"][0])

    @property
    def weights(self) -> nn.ParameterList:
        """The weights as they are now."""
        weights = self._modules["weights"]
        if self._crowd is not None:
            units, self._crowd = self._crowd[1].units(), None
            with torch.no_grad():
                weights[0].copy_(units[:, :2].mT)
                weights[1].copy_(units[:, 2:])
        return weights

    @torch.no_grad()
    def passes(self, x: Float[Tensor, "*runs n d"]) -> LinePasses:
        """Return samples (x, 1), their order, and the outputs: all that the way back needs."""
        x = x.expand(len(self), -1, -1)
        order, ranks, rising, falling = self._active(x)
        active = _at(rising + falling, ranks)
        return LinePasses(x, order, self.factors[1] * (x[:, :, None] @ active[..., :2, 2:])[:, :, 0])

    @torch.no_grad()
    def step(self, passes: LinePasses, slopes: Float[Tensor, "runs n k"], rates: Float[Tensor, " runs"]) -> None:
        """Take a step of gradient descent, in place, as networks of any shape do."""
        rates = -self.factors[1] * rates[:, None, None, None]
        moves = _at(rates * passes.x[..., None] * slopes[:, :, None], passes.order)
        of_rising = _from_here_on(pad(moves, (0, 0, 0, 0, 0, 1)))  # sums over the samples on which a group is active
        of_falling = pad(moves, (0, 0, 0, 0, 1, 0)).cumsum(1)
        self._crowd_on(passes.x).step(torch.cat([of_rising, of_falling], 1))

    @torch.no_grad()
    def kernel(self, x: Float[Tensor, "*runs n d"]) -> Float[Tensor, "runs nk nk"]:
        """Return the tangent kernels, with row `i * k + a` for output a on sample i.

        A unit is active on both of two samples if it rises and has its kink to the left of the left one, or if it falls
        and has it to the right of the right one.
        """
        x = self.passes(x).x
        _, ranks, rising, falling = self._active(x)
        pairs = ranks[:, :, None], ranks[:, None]
        both = _at(rising, torch.minimum(*pairs)) + _at(falling, torch.maximum(*pairs))
        of_last = (x[:, :, None, None] @ both[..., :2, :2] @ x[:, None, :, :, None])[..., 0]  # runs, n, n, 1
        total = (x @ x.mT)[..., None, None] * both[..., 2:, 2:]
        total.diagonal(dim1=-2, dim2=-1).add_(of_last)
        return self.factors[1] ** 2 * total.transpose(2, 3).flatten(3).flatten(1, 2)

    def only(self, runs: Sequence[int]) -> "OnALine":
        """Return copies of some of the networks."""
        return OnALine(*(w.detach()[list(runs)] for w in self.weights))

    def _crowd_on(self, x: Float[Tensor, "runs n 2"]) -> Crowd:
        """Return the units, followed on these samples."""
        if self._crowd is None or not torch.equal(self._crowd[0], x):
            hidden, last = self.weights
            self._crowd = x, Crowd(torch.cat([hidden.mT, last], 1), x[..., 0].sort().values)
        return self._crowd[1]

    def _active(self, x: Float[Tensor, "runs n 2"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return an order of samples, their ranks in it, and second moments of the units that rise and fall on each."""
        order = x[..., 0].argsort()
        moments = self._crowd_on(x).moments()
        rising, falling = moments[:, : x.shape[1]].cumsum(1), _from_here_on(moments[:, x.shape[1] + 2 :])
        return order, order.argsort(), rising, falling


def shallow_on_a_line(width: int, outputs: int = 3, *, seeds: Sequence[int]) -> OnALine:
    """Draw the networks that :func:`gnbook.when_the_kernel_moves.networks.shallow` draws, with ReLUs."""
    return OnALine(*(w.detach() for w in shallow(width, outputs, seeds=seeds).weights))


def _at(values: Float[Tensor, "runs n ..."], places: Int[Tensor, "runs ..."]) -> Float[Tensor, "runs ..."]:
    """Return the values at these places of each run."""
    run = torch.arange(len(places), device=places.device).view(-1, *[1] * (places.ndim - 1))
    return values[run, places]


def _from_here_on(values: Float[Tensor, "runs n *entry"]) -> Float[Tensor, "runs n *entry"]:
    """Return sums of each entry and all after it."""
    return values.flip(1).cumsum(1).flip(1)
