"""The linear model of a network for a loss and an optimiser, and the course that it takes."""

import math
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import SGD, Optimizer

from gnlib.checks import EPS, numerical_rank
from gnlib.diagnosis.descent import Rule, descend
from gnlib.diagnosis.preconditioner import Preconditioner, preconditioned_gram, preconditioner_of, rule_of
from gnlib.eigen.davidson import largest_eigenvalue
from gnlib.eigen.result import NotConvergedError
from gnlib.jacobian.gram import gram_of
from gnlib.jacobian.network import Factors, Network
from gnlib.jacobian.passes import jvp, outputs_of, replace_parameters, vjp
from gnlib.losses import Loss, SquaredError
from gnlib.problem import with_root

DEVIATION = 0.25  # of the residual, by which the network may differ from its linear model
ROUNDING = 1e-8  # of the first residual, below which nothing is compared
FINENESS = 4  # steps at which the network is looked at, in a doubling of their number


class Outputs:
    r"""The coordinates of samples and outputs, in which any loss can be followed.

    Parameters
    ----------
    outputs, loss
        where the network stands
    kernel
        :math:`K_P`
    pushed
        how the outputs change by the momentum from before, `(nk, 1)`, or `(nk, 0)` if there is none
    """

    def __init__(
        self, outputs: Float[Tensor, "n k"], loss: Loss, kernel: Float[Tensor, "r r"], pushed: Float[Tensor, "r e"]
    ) -> None:
        self._loss, self._shape, self._change = loss, outputs.shape, torch.cat([kernel, pushed], 1)
        self.start, self.inherited = outputs.flatten(), pushed.shape[1]

    def change(self, sums: Float[Tensor, " c"]) -> Float[Tensor, " r"]:
        """Return how far weighted sums of gradients take the outputs."""
        return self._change @ sums

    def gradient(self, f: Float[Tensor, " r"]) -> Float[Tensor, " r"]:
        """Return the gradient of the loss."""
        return self._loss.gradient(f.view(self._shape)).flatten()

    def value(self, f: Float[Tensor, " r"]) -> float:
        """Return the loss."""
        return self._loss.value(f.view(self._shape))

    def outputs(self, f: Float[Tensor, " r"]) -> Float[Tensor, "n k"]:
        """Return the outputs."""
        return f.view(self._shape)

    def sums(self, sums: Float[Tensor, " c"]) -> Float[Tensor, " c"]:
        """Return the sums sample by sample, output by output."""
        return sums


class Modes(Outputs):
    """The eigenvectors of the kernel, along each of which the squared error falls by itself."""

    def __init__(
        self,
        outputs: Float[Tensor, "n k"],
        loss: Loss,
        spectrum: tuple[Float[Tensor, " r"], Float[Tensor, "r r"]],
        pushed: Float[Tensor, "r e"],
    ) -> None:
        self._values, self._vectors = spectrum
        self._shape, self.inherited = outputs.shape, pushed.shape[1]
        self._targets = outputs - loss.gradient(outputs)
        self.start, self._pushed = self._vectors.mT @ (outputs - self._targets).flatten(), self._vectors.mT @ pushed

    def change(self, sums: Float[Tensor, " c"]) -> Float[Tensor, " r"]:  # noqa: D102
        size = len(self._values)
        return self._values * sums[:size] + self._pushed @ sums[size:]

    def gradient(self, f: Float[Tensor, " r"]) -> Float[Tensor, " r"]:  # noqa: D102
        return f

    def value(self, f: Float[Tensor, " r"]) -> float:  # noqa: D102
        return float(f @ f) / (2 * self._shape[0])

    def outputs(self, f: Float[Tensor, " r"]) -> Float[Tensor, "n k"]:  # noqa: D102
        return self._targets + (self._vectors @ f).view(self._shape)

    def sums(self, sums: Float[Tensor, " c"]) -> Float[Tensor, " c"]:  # noqa: D102
        size = len(self._values)
        return torch.cat([self._vectors @ sums[:size], sums[size:]])


class Linear(NamedTuple):
    """The linear model of a network, for an optimiser and a loss.

    Attributes
    ----------
    space
        the coordinates in which its outputs are followed
    preconditioner
        of the optimiser
    stable_rate, unreachable
        as in :class:`gnlib.diagnosis.forecast.Forecast`
    """

    space: Outputs
    preconditioner: Preconditioner
    stable_rate: float
    unreachable: float


def linearise(
    networks: Sequence[Network],
    loss: Loss,
    optimizer: Optimizer,
    leaves: Mapping[str, Tensor],
    memory: float,
    kernel: Float[Tensor, "nk nk"] | None = None,
) -> Linear:
    """Return the linear model of networks, one for each batch.

    The optimiser has leaves in the place of the parameters; `kernel` is the Gram matrix, where that is known.
    """
    outputs = outputs_of(networks, memory)
    g = loss.gradient(outputs)
    gradient = {} if isinstance(optimizer, SGD) else vjp(networks, memory)(g)
    preconditioner = preconditioner_of(optimizer, networks, leaves, gradient, memory)
    kernel = gram_of(networks, memory) if kernel is None else kernel
    if preconditioner.factors is not None:
        kernel = preconditioned_gram(networks, preconditioner.factors, memory)
    pushed = outputs.new_zeros(outputs.numel(), 0)
    if preconditioner.momentum is not None:
        pushed = jvp(networks, preconditioner.momentum, memory).reshape(-1, 1)
    space: Outputs
    if isinstance(loss, SquaredError):
        values, vectors = torch.linalg.eigh(kernel)
        values = values.clamp_min(0)
        space, unreachable = Modes(outputs, loss, (values, vectors), pushed), _within_null_space(g, values, vectors)
        largest = float(values[-1])
    else:
        space, unreachable = Outputs(outputs, loss, kernel, pushed), _unreachable(g, kernel)
        largest = _largest(with_root(loss.root(outputs), kernel))
    stable = rule_of(optimizer).limit / largest if largest > 0 else math.inf
    return Linear(space, preconditioner, stable, unreachable)


def _unreachable(g: Float[Tensor, "n k"], kernel: Float[Tensor, "nk nk"]) -> float:
    """Return the share of a gradient in the null space of a kernel: none where a Cholesky factor proves full rank."""
    threshold = len(kernel) * EPS * _largest(kernel)
    shifted = kernel.clone()
    shifted.diagonal().sub_(2 * threshold)  # once for the rounding of the factor
    if threshold > 0 and not torch.linalg.cholesky_ex(shifted).info:
        return 0.0
    return _within_null_space(g, *torch.linalg.eigh(kernel))


def _within_null_space(g: Float[Tensor, "n k"], values: Float[Tensor, " q"], vectors: Float[Tensor, "q q"]) -> float:
    lost = vectors[:, : len(values) - numerical_rank(values, len(values))].mT @ g.flatten()
    return float(lost.square().sum() / g.square().sum()) if g.any() else 0.0


def _largest(matrix: Float[Tensor, "q q"]) -> float:
    """Return the largest eigenvalue of a positive semi-definite matrix."""
    try:
        return largest_eigenvalue(matrix).value
    except NotConvergedError:
        return max(float(torch.linalg.eigvalsh(matrix)[-1]), 0.0)


def follow(space: Outputs, rule: Rule, steps: int) -> tuple[list[float], dict[int, tuple[Tensor, Tensor]]]:
    """Return the losses of so many steps and, at some of them, sums of gradients and outputs."""
    looks = {round(2 ** (j / FINENESS)) for j in range(math.ceil(FINENESS * math.log2(steps)))} | {steps}
    losses: list[float] = []
    kept: dict[int, tuple[Tensor, Tensor]] = {}
    course = descend(space.start, space.change, space.gradient, rule, space.inherited)
    for step, (sums, outputs) in enumerate(islice(course, steps + 1)):
        losses.append(space.value(outputs))
        if not math.isfinite(losses[-1]):
            return losses[:-1] + [math.inf] * (steps + 1 - step), kept
        if step in looks:
            kept[step] = space.sums(sums), space.outputs(outputs)
    return losses, kept


def trusted(
    networks: Sequence[Network],
    loss: Loss,
    preconditioner: Preconditioner,
    kept: Mapping[int, tuple[Float[Tensor, " c"], Float[Tensor, "n k"]]],
    memory: float,
) -> int:
    """Return the last of the kept steps before the first at which the network deviates from its linear model."""
    first, product = loss.gradient(outputs_of(networks, memory)).norm(), vjp(networks, memory)
    size = sum(len(network.x) * network.outputs for network in networks)

    def on(step: int) -> bool:
        sums, outputs = kept[step]
        back = product(sums[:size].view(-1, networks[0].outputs))
        there = replace_parameters(networks, _displaced(networks[0].parameters, preconditioner, back, sums[size:]))
        expected = loss.gradient(outputs)
        apart = (loss.gradient(outputs_of(there, memory)) - expected).norm()
        return bool(apart <= DEVIATION * expected.norm() + ROUNDING * first)

    steps = sorted(kept)
    good, bad = -1, len(steps)
    while good < bad - 1:  # from doubling to doubling, then in between
        look = min(good + FINENESS, bad - 1) if bad == len(steps) else (good + bad) // 2
        good, bad = (look, bad) if on(steps[look]) else (good, look)
    return steps[good] if good >= 0 else 0


def _displaced(
    parameters: Factors, preconditioner: Preconditioner, back: Factors, pushes: Float[Tensor, " e"]
) -> Factors:
    r"""Return the parameters of the linear model, :math:`\theta_0 - \frac1n P^{-1} J^\top c`, momentum included."""
    factors, momentum = preconditioner
    moved = {}
    for name, p in parameters.items():
        moved[name] = p - (back[name] if factors is None else back[name] * factors[name])
        if momentum is not None:
            moved[name] = moved[name] - pushes[0] * momentum[name]
    return moved
