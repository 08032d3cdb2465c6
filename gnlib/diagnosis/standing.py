"""A network where it stands, with a matrix or by products with vectors: its loss, its linear model, and what is ahead.

With a matrix all steps of the linear model are followed. By products, of the squared error, with one rule for all
parameters and no weight decay, some tens of products bound all steps (:mod:`gnlib.diagnosis.curves`). Any other loss,
or rule, is followed step by step: the gradient at the outputs of the linear model is pulled back to the parameters
where the network stands, and the step pushed forward to the outputs. This is exact, and a step takes longer than a real
one.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import Optimizer

from gnlib.diagnosis.linear_by_products import LinearByProducts, by_name, loss_and_gradient
from gnlib.diagnosis.model import Linear, linearise
from gnlib.jacobian.network import Factors, Network
from gnlib.jacobian.passes import freeze_all_but, outputs_of, replace_parameters, vjp
from gnlib.losses import Loss
from gnlib.products.passes import Passes
from gnlib.products.side import Side


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
