"""A network, measured once on its data for all that is asked of it."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from gnlib.checks import EPS, numerical_rank
from gnlib.diagnosis.inputs import Inputs, Packed, networks_on
from gnlib.eigen.dense import singular_value_ends
from gnlib.eigen.result import ConditionNumber
from gnlib.jacobian.gram import add_columns, blocks_of, check_finite, columns_of, mirror
from gnlib.jacobian.network import GIB, Mode
from gnlib.jacobian.passes import outputs_of
from gnlib.jacobian.plan import Cost, check_memory, cost_of, count_rows, label_progress, plan_of
from gnlib.jacobian.record import structures_of
from gnlib.losses import Loss, loss_of

CHEAP = 3e10  # operations, of a second or so
CHEAP_COLUMNS = 5e9  # the same where all columns of the Jacobian are formed
UNITS = nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d
"""Modules whose parameters have one entry, or row, for each unit."""


class Part(NamedTuple):
    """What the parameters of one module add to the Gram matrix of a network.

    Attributes
    ----------
    parameters
        how many they are
    gram
        their part of the matrix
    alive
        for each unit of a layer whether any output on any sample reacts to it; None for other modules
    """

    parameters: int
    gram: Float[Tensor, "nk nk"]
    alive: Tensor | None


class Measured:
    """A network on its data, with a loss: the Gram matrix layer by layer, and what the loss makes of it.

    Attributes
    ----------
    networks, memory
        the function of the module on each batch, and the GiB that may be used
    outputs
        `(n, k)`, of the network on all samples
    loss, has_targets
        with its targets, if there are any
    """

    def __init__(
        self,
        module: nn.Module,
        x: Inputs,
        y: Any = None,
        *,
        loss: str | Callable[[Tensor, Any], Tensor] = "mse",
        output: Callable[..., Tensor] | None = None,
        mode: Mode | None = None,
        memory: float = 4.0,
    ) -> None:
        check_memory(memory)
        self.networks, self.memory = networks_on(module, x, output, mode, memory), memory
        self.outputs = outputs_of(self.networks, memory)
        self.loss: Loss = loss_of(loss, y, self.outputs)
        self.has_targets = y is not None

    @cached_property
    def root(self) -> Float[Tensor, "n k r"]:
        """Roots of the second derivative of the loss by the outputs of each sample."""
        return self.loss.root(self.outputs)

    @cached_property
    def parts(self) -> dict[str, Part]:
        """What each module with parameters of its own adds to the Gram matrix, in the order of registration."""
        networks, size = self.networks, count_rows(self.networks)
        parts: dict[str, Part] = {}
        for name, parameter in networks[0].parameters.items():
            layer = self.layer_of(name)
            if layer not in parts:
                gram = torch.zeros(size, size, dtype=torch.float64, device=parameter.device)
                parts[layer] = Part(0, gram, self._units(layer))
            parts[layer] = parts[layer]._replace(parameters=parts[layer].parameters + parameter.numel())
        structures = structures_of(networks)
        plan = plan_of(networks, structures, self._beside(len(parts) - 1), result=size)
        label = label_progress(networks, structures, plan)
        for group in plan.groups:
            blocks, _, layers = columns_of(networks, structures, plan, group, label, wide=0)  # each parameter apart
            for (name, columns), block in zip(group.columns.items(), blocks, strict=False):
                part = parts[self.layer_of(name)]
                if part.alive is not None:
                    entries = torch.arange(columns.start, columns.stop, device=block.device)[block.any(0)]
                    part.alive[entries // networks[0].parameters[name][0].numel()] = True
                add_columns(part.gram, block)
            for factored in layers:
                name = factored.layer.names[0]
                part = parts[self.layer_of(name)]
                if part.alive is not None:
                    part.alive.logical_or_(factored.alive(networks[0].parameters[name]))
                factored.add_to(part.gram)
            for part in parts.values():
                check_finite(part.gram.diagonal(), group)
        for part in parts.values():
            mirror(part.gram).div_(len(self.outputs))
        return parts

    @cached_property
    def gram(self) -> Float[Tensor, "nk nk"]:
        r"""The Gram matrix :math:`\frac1n J J^\top`."""
        first, *others = [part.gram for part in self.parts.values()]
        total = first.clone()
        for gram in others:
            total += gram
        return total

    @cached_property
    def matrix(self) -> Float[Tensor, "nr nr"]:
        r"""The matrix of the loss, :math:`\frac1n R^\top J J^\top R`."""
        return through(self.root, self.gram)

    @cached_property
    def spectrum(self) -> tuple[Float[Tensor, " nr"], Float[Tensor, "nr nr"]]:
        """All eigenvalues of the matrix of the loss, ascending, and its eigenvectors in columns."""
        values, vectors = torch.linalg.eigh(self.matrix)
        if values[-1] <= 0:
            raise ValueError(
                "The Gauss-Newton matrix of the loss is zero: the loss has no curvature at these outputs (a perfect "
                "fit, with probabilities of 0 and 1), or no output depends on a parameter. Measure at other weights."
            )
        return values, vectors

    @cached_property
    def rank(self) -> int:
        """Number of eigenvalues that are not zero."""
        values, _ = self.spectrum
        return numerical_rank(values, len(values))

    @cached_property
    def condition(self) -> ConditionNumber:
        """Both ends of the spectrum of the matrix of the loss; from singular values where it does not resolve them."""
        found = self.ends(self.spectrum[0])
        if found.resolved and found.rank == min(len(self.matrix), self.parameters):
            return found
        scale = len(self.outputs) ** 0.5
        return singular_value_ends(self.rooted(block) / scale for block in blocks_of(self.networks, self.memory / 4))

    def ends(self, ascending: Float[Tensor, " q"]) -> ConditionNumber:
        """Return both ends of the spectrum of a matrix of this network, with the rounding that went into it."""
        rank, largest = numerical_rank(ascending, len(ascending)), ascending[-1].item()
        smallest = ascending[-rank].item()
        zero = ascending[: len(ascending) - rank].abs().max().item() if rank < len(ascending) else 0.0
        gap = smallest / max(zero, EPS * largest)
        rounding = max(count_rows(self.networks), self.parameters) ** 0.5 * EPS * largest / smallest
        return ConditionNumber(largest, smallest, rank, gap, 1 / gap + rounding, "eigenvalues of the Gram matrix")

    def rooted(self, block: Float[Tensor, "nk g"]) -> Float[Tensor, "nr g"]:
        """Return `R^T J` for columns of the Jacobian."""
        n, k = self.outputs.shape
        return (self.root.mT @ block.view(n, k, -1)).flatten(0, 1)

    def cost(self, *, probe: bool = False) -> Cost:
        """Return what the Gram matrix of the network takes, with seconds if something may be tried."""
        return cost_of(self.networks, self.memory, probe=probe)

    @property
    def is_cheap(self) -> bool:
        """Whether the matrix of this network takes so little that it may be made again for a trial."""
        return self.networks[0].vmapped and self.cost().operations < CHEAP

    def is_cheap_for(self, optimizer: Optimizer | None) -> bool:
        """Whether what an optimiser makes of the matrix takes so little too."""
        plain = optimizer is None or isinstance(optimizer, SGD)
        return plain or self.parameters * count_rows(self.networks) ** 2 < CHEAP_COLUMNS

    @property
    def gib(self) -> float:
        """Memory of the matrices of a report: one for each module with parameters, and three more."""
        layers = {self.layer_of(name) for name in self.networks[0].parameters}
        return 8 * (len(layers) + 3) * count_rows(self.networks) ** 2 / GIB

    @cached_property
    def parameters(self) -> int:
        """Number of parameters that require a gradient."""
        return sum(p.numel() for p in self.networks[0].parameters.values())

    @property
    def module(self) -> nn.Module:
        """The module as it was passed, without what is wrapped around it."""
        module = self.networks[0].module
        return module.module if isinstance(module, Packed) else module

    def layer_of(self, parameter: str) -> str:
        """Return the name of the module that holds a parameter, as the user knows it."""
        return self.name_of(parameter).rpartition(".")[0]

    def name_of(self, parameter: str) -> str:
        """Return the name of a parameter, as the user knows it."""
        return parameter.removeprefix("module.") if isinstance(self.networks[0].module, Packed) else parameter

    def _units(self, layer: str) -> Tensor | None:
        module = self.module.get_submodule(layer)
        if not isinstance(module, UNITS):
            return None
        return torch.zeros(len(module.weight), dtype=torch.bool, device=self.outputs.device)

    def _beside(self, matrices: int) -> float:
        """Return the GiB that are left beside so many matrices."""
        size = count_rows(self.networks)
        held = 8 * size**2 * matrices / GIB
        if held >= self.memory:
            raise ValueError(
                f"memory is {self.memory} GiB but {held:.2g} are needed for {matrices} matrices of size {size}, one "
                "for each layer; allow more, or pass fewer samples."
            )
        return self.memory - held


def through(root: Float[Tensor, "n k r"], gram: Float[Tensor, "nk nk"]) -> Float[Tensor, "nr nr"]:
    """Return `R^T K R` for a block-diagonal R, one block for each sample."""
    n, k, r = root.shape
    left = (root.mT @ gram.view(n, k, n * k)).view(n * r, n, k)
    found = (left.transpose(0, 1) @ root).transpose(0, 1).reshape(n * r, n * r)
    return (found + found.mT) / 2
