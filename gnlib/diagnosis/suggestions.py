"""What to change, tried on the spot: each suggestion with the condition number that it leads to."""

import copy
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gnlib.diagnosis.by_layer import Shares
from gnlib.diagnosis.culprits import Culprits
from gnlib.diagnosis.inputs import Inputs
from gnlib.diagnosis.measured import Measured, through
from gnlib.moment import whiten
from gnlib.spectrum.result import ConditionNumber

MOST = 3
WORTH = 1.25  # by which the condition number has to fall
FACTOR = 10  # of the learning rate of one layer
OFF_CENTRE = 0.1  # of their root mean square, above which the means of the inputs are worth a trial


class Suggestion(NamedTuple):
    """Something to do, and both ends of the spectrum once it is done."""

    what: str
    after: ConditionNumber

    def __str__(self) -> str:
        """Return a line."""
        return f"{self.what}: kappa {self.after.value:.3g}, rank {self.after.rank}"


def suggestions_for(
    measured: Measured,
    x: Inputs,
    again: Callable[[nn.Module, Inputs], Measured] | None,
    shares: Shares,
    found: Culprits,
) -> tuple[Suggestion, ...]:
    """Return the three changes that help the most, of those tried here.

    Parameters
    ----------
    measured, x
        a network that has been measured, on these inputs
    again
        measures another module or other inputs in the same way; None where that takes too long
    shares, found
        where its condition number comes from
    """
    tried = [*_without_duplicates(measured, found), *_by_rates(measured, shares)]
    if again is not None:
        tried += [*_other_inputs(x, lambda other: again(measured.module, other))]
        tried += [*_seen(measured, x, again)]
    before = measured.condition

    def gain(suggestion: Suggestion) -> float:
        return before.value / suggestion.after.value

    worth = [s for s in tried if gain(s) >= WORTH or (s.what.startswith("drop") and gain(s) > 1 / WORTH)]
    return tuple(sorted(worth, key=gain, reverse=True)[:MOST])


def fresh_norms(module: nn.Module) -> list[_BatchNorm]:
    """Return the batch normalisations whose running statistics are those of a new one."""

    def is_fresh(norm: _BatchNorm) -> bool:
        mean, variance = norm.running_mean, norm.running_var
        return mean is not None and variance is not None and not mean.any() and bool((variance == 1).all())

    return [m for m in module.modules() if isinstance(m, _BatchNorm) and is_fresh(m)]


def _ends(measured: Measured) -> ConditionNumber:
    return measured.ends(torch.linalg.eigvalsh(measured.matrix))


def _without_duplicates(measured: Measured, found: Culprits) -> Iterator[Suggestion]:
    """Leave out the second of each pair of samples."""
    dropped = sorted({pair.second for pair in found.equal_samples})
    n, r = len(measured.root), measured.root.shape[2]
    if dropped:
        kept = torch.ones(n, dtype=torch.bool, device=measured.outputs.device)
        kept[dropped] = False
        rows = kept.repeat_interleave(r)
        matrix = measured.matrix[rows][:, rows] * (n / (n - len(dropped)))
        what = f"drop sample{'s' * (len(dropped) > 1)} {', '.join(map(str, dropped))}"
        yield Suggestion(what, measured.ends(torch.linalg.eigvalsh(matrix)))


def _by_rates(measured: Measured, shares: Shares) -> Iterator[Suggestion]:
    """Give a smaller rate to the layer that makes kappa larger, and a larger rate to the one that makes it smaller.

    A learning rate of its own multiplies a layer's part of the matrix.
    """
    if len(shares.layers) < 2:
        return
    steep, flat = (extreme(shares.layers, key=lambda share: share.kappa) for extreme in (max, min))
    for share, factor, how in ((steep, 1 / FACTOR, "smaller"), (flat, FACTOR, "larger")):
        gram = measured.gram + (factor - 1) * measured.parts[share.layer].gram
        what = f"give {share.layer or 'the module itself'} a learning rate {FACTOR} times {how}"
        yield Suggestion(what, measured.ends(torch.linalg.eigvalsh(through(measured.root, gram))))


def _other_inputs(x: Inputs, again: Callable[[Tensor], Measured]) -> Iterator[Suggestion]:
    """Centre the inputs, feature by feature or channel by channel, give them the size of one, or whiten them."""
    if not isinstance(x, Tensor) or not x.is_floating_point() or x.ndim < 2 or len(x) < 2:
        return
    x = x.detach().double()
    axes = (0, *range(2, x.ndim))
    mean = x.mean(axes, keepdim=True)
    centred = x - mean
    spread = centred.square().mean().sqrt()
    if spread > 0 and not 0.5 < spread < 2:
        yield Suggestion(
            "centre the inputs and divide them by their standard deviation", _ends(again(centred / spread))
        )
    elif spread > 0 and mean.square().mean().sqrt() > OFF_CENTRE * x.square().mean().sqrt():
        yield Suggestion("centre the inputs", _ends(again(centred)))
    if x.ndim == 2 and len(x) > x.shape[1] and spread > 0:
        yield Suggestion("whiten the inputs", _ends(again(whiten(x))))


def _seen(measured: Measured, x: Inputs, again: Callable[[nn.Module, Inputs], Measured]) -> Iterator[Suggestion]:
    """Let fresh batch normalisations see the batch."""
    if measured.networks[0].mode != "train" and fresh_norms(measured.module) and isinstance(x, Tensor):
        module = copy.deepcopy(measured.module)
        norms = fresh_norms(module)
        module.eval()
        for norm in norms:
            norm.train()
            norm.momentum = 1.0  # nothing of the old statistics is left
        with torch.no_grad():
            module(x.to(next(module.parameters()).dtype) if x.is_floating_point() else x)
        yield Suggestion("pass the batch once in training mode", _ends(again(module.eval(), x)))
