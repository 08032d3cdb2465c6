r"""Training on mini-batches: the mean loss of the linear model over all draws, and the largest stable rate.

With the residual r of n samples and :math:`K = \frac1n J J^\top`, a step on a batch of b samples is
:math:`r \leftarrow r - \eta \frac nb K P_B r`, where :math:`P_B` keeps the rows of the batch. Each step draws its batch
anew, every one equally likely. So the mean of r follows full batches, and :math:`S = \mathbb E\, r r^\top` follows

.. math:: S \leftarrow (1 - \eta K) S (1 - \eta K) + \gamma \eta^2 K \bigl(n D(S) - S\bigr) K, \qquad
    \gamma = \frac{n - b}{b (n - 1)} ,

where D keeps the blocks of single samples. The mean of the loss is :math:`\operatorname{tr} S / 2n`.

It stays bounded for every residual at rates below :math:`1 / \mu`, and for some residual it does not at any rate above.
In the eigenvectors V of K, :math:`\mu` is the largest eigenvalue of the symmetric map

.. math:: M \mapsto H \circ \bigl((1 - \gamma) X + \gamma n V^\top D(V X V^\top) V\bigr), \qquad X = H \circ M, \quad
    H_{ij} = \sqrt{\lambda_i \lambda_j / (\lambda_i + \lambda_j)} .

References
----------
M. Velikanov, D. Kuznedelev, D. Yarotsky (2023), A view of mini-batch SGD via generating functions, ICLR 11 (the map).
R. Mulayoff, T. Michaeli (2024), Exact mean square linear stability analysis for SGD, COLT 37 (the rate, by matrices of
the size of the squared number of parameters).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import SGD, Optimizer

from gnlib.diagnosis.descent import Rule
from gnlib.diagnosis.preconditioner import moved_by, optimizer_of, parts_of, rate_of
from gnlib.diagnosis.rates import StableRate, stable_rate_of_largest
from gnlib.diagnosis.waits import residual_of
from gnlib.eigen.davidson import extreme_eigenpair
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
SPACE = 16  # vectors that the search for the largest eigenvalue keeps, with their products


class BatchNoise:
    """The second moment of the residual under mini-batches, in the eigenvectors (in columns) of the Gram matrix.

    Each sample has as many rows in it as the others.
    """

    def __init__(self, values: Float[Tensor, " q"], vectors: Float[Tensor, "q q"], samples: int, batch: int) -> None:
        self.values, self._vectors, self._samples = values.clamp_min(0), vectors, samples
        self.share = share_of_one(samples, batch)

    def alone(self, moment: Float[Tensor, "q q"]) -> Float[Tensor, "q q"]:
        """Return n times the blocks of single samples of a matrix, both in the eigenvectors."""
        rows = self._vectors.view(self._samples, -1, len(self.values))
        blocks = (self._vectors @ moment).view_as(rows) @ rows.mT
        return self._samples * (self._vectors.mT @ (blocks @ rows).view_as(self._vectors))

    def after(self, moment: Float[Tensor, "q q"], rate: float) -> Float[Tensor, "q q"]:
        """Return the second moment after a step."""
        left, taken = 1 - rate * self.values, rate * self.values
        full = left[:, None] * moment * left
        if not self.share:
            return full
        return full + self.share * (taken[:, None] * (self.alone(moment) - moment) * taken)

    def losses(self, residual: Float[Tensor, " q"], rates: Iterable[float]) -> Float[Tensor, " steps"]:
        """Return the mean loss before step 1, after it, and so on."""
        start = self._vectors.mT @ residual
        moment = torch.outer(start, start)
        traces = [moment.trace()]
        for rate in rates:
            moment = self.after(moment, rate)
            traces.append(moment.trace())
        return torch.stack(traces).div_(2 * self._samples).nan_to_num_(nan=math.inf)

    def sharpness(self, tolerance: float = 1e-8, max_steps: int = 500) -> float:
        """Return two over the largest stable rate: of full batches it is the largest eigenvalue.

        The search begins at the identity, which has a part along every matrix that is positive semi-definite, as the
        one that belongs to the largest eigenvalue is.
        """
        if not self.share:
            return float(self.values[-1])
        sums = self.values[:, None] + self.values
        weights = (torch.outer(self.values, self.values) / sums.where(sums > 0, 1)).sqrt()

        def product(v: Float[Tensor, " p *columns"]) -> Float[Tensor, " p *columns"]:
            if v.ndim > 1:
                return torch.stack([product(column) for column in v.unbind(-1)], -1)
            moment = weights * v.view_as(weights)
            return (weights * ((1 - self.share) * moment + self.share * self.alone(moment))).flatten()

        found = extreme_eigenpair(
            product,
            torch.eye(len(self.values)).to(self.values).view(-1, 1),
            block=1,
            largest=True,
            precondition=lambda residual: residual,
            errors=lambda values, residual, _: torch.linalg.vector_norm(residual, dim=0) / values,
            tolerance=tolerance,
            max_steps=max_steps,
            max_blocks=SPACE,
        )
        return 2 * found.value


def share_of_one(samples: int, batch: int) -> float:
    r"""Return :math:`\gamma`, the share of single samples in the noise: 1 for batches of one, 0 for full batches."""
    return (samples - batch) / (batch * (samples - 1)) if batch < samples else 0.0


def sharpness_at_most(largest: float, largest_of_one: float, samples: int, batch: int) -> float:
    r"""Return what two over the largest stable rate is at most.

    It is :math:`(1 - \gamma) \lambda_{\max} + \gamma m`, with m the largest eigenvalue that a single sample has alone,
    of :math:`J_i J_i^\top`.

    Examples
    --------
    >>> sharpness_at_most(2.5, 4.0, samples=2, batch=1)
    4.0
    """
    share = share_of_one(samples, batch)
    return (1 - share) * largest + share * largest_of_one


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
