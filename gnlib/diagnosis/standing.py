"""A network where it stands, with a matrix or by products with vectors: its loss, its linear model, and its first step.

With a matrix all steps of the linear model are followed. By products, of the squared error, with one rule for all
parameters and no weight decay, some tens of products bound all steps (:mod:`gnlib.diagnosis.curves`). Any other loss,
or rule, is followed step by step: the gradient at the outputs of the linear model is pulled back to the parameters
where the network stands, and the step pushed forward to the outputs. This is exact, and a step takes longer than a real
one.
"""

import copy
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import SGD, Optimizer

from gnlib.diagnosis.linear_by_products import LinearByProducts, by_name, loss_and_gradient
from gnlib.diagnosis.model import Linear, linearise
from gnlib.diagnosis.preconditioner import rate_of
from gnlib.jacobian.network import Factors, Network
from gnlib.jacobian.passes import freeze_all_but, outputs_of, replace_parameters, vjp
from gnlib.losses import Loss
from gnlib.products.passes import Passes
from gnlib.products.side import Side

RISE = 10  # of the loss, which no first step may reach
SHARE = 1 / 6  # of the longest first step: those that follow are as long, and may go the same way
SHORTEST = 1e-6  # of the size of the parameters, from which longer steps are tried
BISECTIONS = 3  # of the last doubling


@dataclass(frozen=True, eq=False)
class Whole:
    """A network with its matrix, and a function that returns the Gram matrix, if that is known."""

    networks: Sequence[Network]
    loss: Loss
    memory: float
    kernel: Callable[[], Float[Tensor, "nk nk"]] | None = None
    device: torch.device | None = None  # of a clock that processes share

    @property
    def network(self) -> Network:
        """The module and its parameters."""
        return self.networks[0]

    def only(self, names: Collection[str]) -> "Whole":
        """Return the same, differentiated by these parameters alone."""
        return replace(self, networks=freeze_all_but(self.networks, names), kernel=None)

    def at(self, parameters: Factors) -> "Whole":
        """Return the same with other parameters."""
        return replace(self, networks=replace_parameters(self.networks, parameters), kernel=None)

    def value(self) -> float:
        """Return the loss."""
        return self.loss.value(outputs_of(self.networks, self.memory))

    def loss_and_gradient(self) -> tuple[float, Factors]:
        """Return the loss, and its gradient by parameter."""
        outputs = outputs_of(self.networks, self.memory)
        return self.loss.value(outputs), vjp(self.networks, self.memory)(self.loss.gradient(outputs))

    def linear(self, optimizer: Optimizer, leaves: Factors) -> Linear:
        """Return the linear model."""
        kernel = None if self.kernel is None else self.kernel()
        return linearise(self.networks, self.loss, optimizer, leaves, self.memory, kernel)


@dataclass(frozen=True, eq=False)
class Large:
    """A network of any size, by products with vectors."""

    side: Side
    memory: float

    @property
    def network(self) -> Passes:
        """The module and its parameters."""
        return self.side.passes

    @property
    def device(self) -> torch.device:
        """The device of a clock that processes share."""
        return self.side.operator.device

    def only(self, names: Collection[str]) -> "Large":
        """Return the same, differentiated by these parameters alone."""
        passes = self.side.passes
        held = {name: p for name, p in passes.parameters.items() if name not in names}
        own = {name: p for name, p in passes.parameters.items() if name in names}
        return self._with(replace(passes, parameters=own, frozen=passes.frozen | held))

    def at(self, parameters: Factors) -> "Large":
        """Return the same with other parameters."""
        return self._with(replace(self.side.passes, parameters=parameters))

    def value(self) -> float:
        """Return the loss."""
        return self.side.loss

    def loss_and_gradient(self) -> tuple[float, Factors]:
        """Return the loss, and its gradient by parameter."""
        loss, gradient = loss_and_gradient(self.side)
        return loss, {name: g.to(self.network.dtype) for name, g in by_name(self.network, gradient).items()}

    def linear(self, optimizer: Optimizer, leaves: Factors) -> LinearByProducts:
        """Return the linear model."""
        return LinearByProducts(self.side, optimizer, leaves, self.memory)

    def _with(self, passes: Passes) -> "Large":
        return replace(self, side=replace(self.side, passes=passes))


Standing = Whole | Large


def longest_step(standing: Standing, optimizer: Optimizer, leaves: Mapping[str, Tensor]) -> float:
    r"""Return the largest rate at which an adaptive optimiser may begin; infinite for one that is not.

    Adam's first steps have the size of the rate in each parameter, whatever the gradient: they are
    :math:`\eta \operatorname{sign} g`, which no quadratic model with P held knows of. So the network is evaluated at
    longer and longer first steps, until its loss is ten times that at the start. A sixth of the longest before is
    returned. On 31 networks of many kinds that was between 1 and 5.6 times the largest rate at which no loss of 30 real
    steps rises tenfold.

    Parameters whose gradient is zero at the start, as behind a head of zeros, have one after it, and move as far: they
    take the usual size of a step, with any sign.
    """
    if isinstance(optimizer, SGD):
        return math.inf
    (start, gradient), parameters = standing.loss_and_gradient(), standing.network.parameters
    step = _first_step(optimizer, leaves, gradient)
    flat = torch.cat([entries.flatten() for entries in step.values()])
    if not flat.any() or not math.isfinite(start) or not start:
        return math.inf
    usual, generator = flat[flat != 0].square().mean().sqrt(), torch.Generator().manual_seed(0)
    for entries in step.values():
        signs = torch.randint(2, entries.shape, generator=generator).to(entries) * 2 - 1
        entries.copy_(torch.where(entries == 0, usual * signs, entries))

    def rises(rate: float) -> bool:
        moved = {name: p - rate * step[name] for name, p in parameters.items()}
        return not standing.at(moved).value() < start + (RISE - 1) * abs(start)

    flat = torch.cat([p.flatten() for p in parameters.values()])
    rate = SHORTEST * float(flat.square().mean().sqrt() / usual) or SHORTEST
    while not rises(2 * rate) and rate < 1 / SHORTEST:
        rate *= 2
    factor = 2.0
    for _ in range(BISECTIONS):
        factor **= 0.5
        rate *= 1 if rises(factor * rate) else factor
    return SHARE * rate


def _first_step(optimizer: Optimizer, leaves: Mapping[str, Tensor], gradient: Factors) -> Factors:
    """Return how far an optimiser goes back at its next step at a rate of one, on copies, state and all."""
    twin, there = copy.deepcopy((optimizer, dict(leaves)))
    rate, before = rate_of(twin), {name: there[name].clone() for name in gradient}
    for group in twin.param_groups:
        group["lr"] /= rate
    for name, entries in gradient.items():
        there[name].grad = entries
    twin.step()
    return {name: p - there[name] for name, p in before.items()}
