"""Training on mini-batches: the mean loss of the linear model over all draws, and the largest stable rate."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral

from jaxtyping import Float
from torch import Tensor
from torch.optim import SGD, Optimizer

from gnlib.diagnosis.batch_noise import SPACE, BatchNoise, sharpness_at_most
from gnlib.diagnosis.descent import Rule
from gnlib.diagnosis.preconditioner import moved_by, optimizer_of, parts_of, rate_of
from gnlib.diagnosis.rates import StableRate, stable_rate_of_largest
from gnlib.diagnosis.waits import residual_of
from gnlib.eigen.top import largest_eigenpairs
from gnlib.jacobian.network import GIB
from gnlib.jacobian.refusals import check_mode
from gnlib.problem import Problem
from gnlib.products.parts import Part, narrowed
from gnlib.products.side import Side, is_shared, side_by
from gnlib.refused import Refused

STEPS = 100  # if their number is not given
MATRICES = 8  # of the size of the Gram matrix that a step works with
COUPLED = (
    "Samples of a batch depend on each other (batch normalisation in training, or processes that share them), so that "
    "another batch is another function; pass mode='eval', in one process."
)
PLAIN = (
    "On mini-batches the linear model is known for gradient descent of all parameters at one rate, without momentum "
    "and weight decay; pass optimizer='sgd', or leave batch= out."
)
CLOSE = 1e-2  # by which eigenvalues are taken for larger than products find them, to a tenth of that


@dataclass(frozen=True, eq=False)
class BatchForecast:
    """The mean loss of gradient descent on mini-batches, of the linear model, over all draws of batches.

    Attributes
    ----------
    losses
        the mean before step 1, after it, and so on. How far single runs are from it is not known; at any one step no
        more than one run in ten is above ten times the mean (Markov)
    full_batch
        the losses of full batches at the same rates, which are nowhere larger
    rates
        of each step
    batch
        samples in a batch
    stable_rate
        the largest constant rate at which the mean stays bounded
    """

    losses: Float[Tensor, " steps"]
    full_batch: Float[Tensor, " steps"]
    rates: tuple[float, ...]
    batch: int
    stable_rate: float

    def steps_to(self, goal: float) -> int | None:
        """Return the first step at which the mean loss is at most `goal`, or None where that is not by the last."""
        there = (self.losses <= goal).nonzero()
        return int(there[0]) if len(there) else None

    def __str__(self) -> str:
        """Return a line for the loss and one for the rate."""
        first, last, full = float(self.losses[0]), float(self.losses[-1]), float(self.full_batch[-1])
        return (
            f"loss {first:.4g}, after {len(self.rates):,} steps {last:.4g} in the mean on batches of {self.batch}, "
            f"{full:.4g} on full ones\n"
            f"rate at most {max(self.rates):.3g}, {max(self.rates) / self.stable_rate:.3g} of the largest stable one"
        )


def batch_stable_rate(problem: Problem, batch: int, optimizer: str | Optimizer | None = None) -> StableRate:
    """Return the largest stable rate of gradient descent on batches, for the quadratic model of any loss."""
    _check_plain(problem, optimizer)
    rate = stable_rate_of_largest(_noise_of(problem, batch, MATRICES + 2 * SPACE).sharpness())
    name, smallest = f"gradient descent on batches of {batch}", lambda: problem.condition.smallest
    return replace(rate, optimizer=name, find_smallest=smallest, batch=batch)


def batch_rate_bound(side: Side, largest: float, batch: int, optimizer: str | Optimizer | None = None) -> StableRate:
    """Return a lower bound of the largest stable rate, by the largest eigenvalue and those of single samples."""
    samples = sum(part.samples for part in side.passes.parts)
    _check_batch(batch, samples)
    with side.passes.as_meant():
        coupled = check_mode(side.passes)
    if coupled or is_shared():
        raise Refused("samples-coupled", COUPLED)
    rate = stable_rate_of_largest(largest, optimizer)
    if rate.rule != Rule(1.0):
        raise Refused("wrong-optimizer", PLAIN)
    ones = [_alone(side, part, i) for part in side.passes.parts for i in range(part.samples)]
    if len({one.weight for one in ones}) > 1:
        raise Refused(
            "samples-coupled",
            "Samples have different numbers of tokens, or classes of different weight, so that the mean over a batch "
            "is not that of its samples; leave batch= out.",
        )
    tops = [float(largest_eigenpairs(one.operator, tolerance=CLOSE / 10).values[0]) for one in ones]
    sharpness = (1 + CLOSE) * (1 + side.error) * sharpness_at_most(largest, max(tops), samples, batch)
    return replace(rate, optimizer=f"{rate.optimizer} on batches of {batch}", largest=sharpness, batch=batch)


def batch_forecast_of(
    problem: Problem,
    batch: int,
    rate: float | Sequence[float] | None = None,
    *,
    steps: int | None = None,
    optimizer: str | Optimizer | None = None,
) -> BatchForecast:
    """Return the mean loss of gradient descent on batches, at half the largest stable rate if none is given."""
    if not problem.is_plain:
        raise Refused(
            "wrong-loss",
            f"The mean loss on batches is known of the squared error, and the loss is {problem.loss.name}; pass "
            "loss='mse', or ask for stable_rate(batch=), which knows the quadratic model of any loss.",
        )
    residual, stable = residual_of(problem), batch_stable_rate(problem, batch, optimizer).rate
    if rate is None:
        rate = (rate_of(optimizer) if isinstance(optimizer, Optimizer) else None) or stable / 2
    rates = _rates(rate, steps)
    losses, full = (_noise_of(problem, size).losses(residual, rates) for size in (batch, len(problem.outputs)))
    return BatchForecast(losses, full, rates, int(batch), stable)


def _noise_of(problem: Problem, batch: int, matrices: int = MATRICES) -> BatchNoise:
    """Return the second moment of the residual, after a look at the memory."""
    _check_batch(batch, len(problem.outputs))
    if any(network.coupled for network in problem.networks):
        raise Refused("samples-coupled", COUPLED)
    values, vectors = problem.spectrum
    needed = problem.held + 8 * matrices * len(values) ** 2 / GIB
    if needed > problem.memory:
        raise Refused(
            "too-little-memory",
            f"memory is {problem.memory} GiB but {needed:.3g} are needed for {matrices} matrices of {len(values):,} "
            "rows; allow more, or pass fewer samples.",
        )
    return BatchNoise(values, vectors, len(problem.outputs), batch)


def _alone(side: Side, part: Part, i: int) -> Side:
    """Return the same of a single sample."""
    return side_by(replace(side.passes, parts=(narrowed(part, i, i + 1),)), side.curvature, side.versions)


def _check_batch(batch: int, samples: int) -> None:
    if not isinstance(batch, Integral) or not 1 <= batch <= samples:
        raise Refused("bad-option", f"batch is {batch}; a whole number from 1 to the {samples} samples was expected.")


def _check_plain(problem: Problem, optimizer: str | Optimizer | None) -> None:
    """Refuse optimisers other than gradient descent of all parameters at one rate."""
    if optimizer is None:
        return
    networks = problem.networks
    leaves = {name: p.detach() for name, p in (networks[0].parameters | networks[0].frozen).items()}
    made = optimizer_of(optimizer, networks[0], leaves, 1.0)
    moved = moved_by(made, networks, leaves)
    parts = parts_of(made, moved, leaves)
    alike = [part.rule for part in parts] == [Rule(1.0)] and {*parts[0].scales.values()} == {1.0}
    if not (isinstance(made, SGD) and moved is networks and alike):
        raise Refused("wrong-optimizer", PLAIN)


def _rates(rate: float | Sequence[float], steps: int | None) -> tuple[float, ...]:
    """Return the rate of each step."""
    if steps is not None and (not isinstance(steps, Integral) or steps < 1):
        raise Refused("bad-option", f"steps is {steps}; a whole number of at least 1 was expected.")
    rates = tuple(map(float, rate)) if isinstance(rate, Sequence) else (float(rate),) * int(steps or STEPS)
    if steps not in (None, len(rates)):
        raise Refused("bad-option", f"rate has {len(rates)} rates and steps is {steps}; pass one rate for each step.")
    if not any(rates) or not all(0 <= each < math.inf for each in rates):
        raise Refused("rate-too-large", f"rate is {rate}; a positive number was expected, or one for each step.")
    return rates
