"""The units of layers that no output reacts to: those that are dead, and those behind zeros that have yet to move.

A unit is dead if no output on any sample reacts to what its layer returns for it, whatever makes that: a weight, an
adapter beside it, or both. It is not dead if it waits for a head of zeros, which moves at the first step.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from gnlib.advice.layers import UNITS
from gnlib.jacobian.network import Factors
from gnlib.problem import Problem
from gnlib.text import listed

STEP = 1e-6  # of zeros, relative to their tensor: enough for gradients to pass, too little to revive a unit


class Waiting(NamedTuple):
    """Layers that no output reacts to before others, of zeros, have moved, and whether they are all before these."""

    layers: tuple[str, ...]
    zeros: tuple[str, ...]
    all_before: bool

    def line(self) -> tuple[str, str]:
        """Return a heading and a sentence."""
        zeros = listed([name or "the module" for name in self.zeros])
        if self.all_before:
            return f"no output reacts to anything before {zeros} yet", "normal for a layer of zeros: it moves first"
        layers = listed([name or "the module" for name in self.layers])
        return f"no output reacts to {layers} yet", f"normal behind the zeros in {zeros}: they move first"


class Reach(NamedTuple):
    """What the outputs react to, by the gradients of a random sum of them, which vanish by no chance."""

    units: dict[str, Bool[Tensor, " units"]]  # of each layer that has some, in the order of their calls
    gradients: Factors  # by parameter
    calls: list[str]  # layers with trainable parameters, in the order in which they return


def unreached_units(problem: Problem) -> tuple[dict[str, Bool[Tensor, " units"]], Waiting | None]:
    """Return the dead units of each layer that has some, and the layers that wait for zeros, if there are any."""
    parameters = dict(problem.networks[0].parameters)
    later = _reach(problem, parameters)
    unmoved = _without_gradient(problem, later)
    moved: dict[str, bool] = {}  # parameters with zeros, and whether they are all zero
    while _without_gradient(problem, later) or not all(units.all() for units in later.units.values()):
        zeros = {name: p for name, p in parameters.items() if later.gradients[name][p == 0].any()}
        if not zeros:
            break
        for name, p in zeros.items():
            moved.setdefault(name, not p.any())
            step = STEP * (p.square().mean().sqrt() if p.any() else 1.0)
            parameters[name] = torch.where(p == 0, step * later.gradients[name].sign(), p)
        later = _reach(problem, parameters)
    dead = {layer: ~units for layer, units in later.units.items() if not units.all()}
    waiting = unmoved - _without_gradient(problem, later)
    if not waiting:
        return dead, None
    whole = [name for name, all_zero in moved.items() if all_zero and "bias" not in name.rpartition(".")[2]]
    causes = list(dict.fromkeys(problem.layer_of(name) for name in whole or moved))
    calls = [*later.calls, *sorted(waiting.difference(later.calls))]
    before = {*calls[: calls.index(causes[0])]} if len(causes) == 1 and causes[0] in calls else set()
    ordered = sorted(waiting, key=calls.index)
    return dead, Waiting(tuple(ordered), tuple(causes), bool(before) and waiting.intersection(later.calls) == before)


def _without_gradient(problem: Problem, reach: Reach) -> set[str]:
    """Return the layers of which the outputs react to no parameter."""
    layers = {name: problem.layer_of(name) for name in reach.gradients}
    return {*layers.values()} - {layers[name] for name, gradient in reach.gradients.items() if gradient.any()}


@torch.inference_mode(False)
def _reach(problem: Problem, parameters: Factors) -> Reach:
    """Return what the outputs react to, by a forward and a backward pass."""
    modules = {
        name: module
        for name, module in problem.module.named_modules()
        if any(p.requires_grad for p in module.parameters(recurse=isinstance(module, UNITS)))
    }
    generator, calls = torch.Generator().manual_seed(0), dict[str, None]()
    sums = {name: torch.zeros_like(p) for name, p in parameters.items()}
    reached = dict[str, Tensor]()
    for network in problem.networks:
        for x in network.batches(problem.memory):
            probes: list[tuple[str, Tensor]] = []
            handles = [m.register_forward_hook(_probe(name, calls, probes)) for name, m in modules.items()]
            try:
                with network.as_template(), torch.enable_grad():
                    leaves = {name: p.detach().requires_grad_() for name, p in parameters.items()}
                    y = network(leaves, x)
            finally:
                for handle in handles:
                    handle.remove()
            weights = torch.randn(y.shape, generator=generator, dtype=y.dtype, device="cpu").to(y)
            wanted = [*leaves.values(), *(probe for _, probe in probes)]
            with network.as_template():  # a checkpoint calls a part of the network again
                gradients = torch.autograd.grad(y, wanted, weights, allow_unused=True, materialize_grads=True)
            for name, gradient in zip(sums, gradients, strict=False):
                sums[name] += gradient
            for (name, _), gradient in zip(probes, gradients[len(sums) :], strict=True):
                units = gradient.movedim(_units(modules[name])[0], 0).flatten(1).any(1)
                reached[name] = reached[name] | units if name in reached else units
    return Reach({name: reached[name] for name in calls if name in reached}, sums, [*calls])


def _probe(name: str, calls: dict[str, None], probes: list[tuple[str, Tensor]]) -> Callable[..., Tensor | None]:
    """Return a hook that notes the call of a module, and adds zeros to the result of a layer, to differentiate by."""

    def hook(module: nn.Module, inputs: Any, result: Any) -> Tensor | None:
        calls.setdefault(name)
        if not isinstance(module, UNITS) or not isinstance(result, Tensor) or not torch.is_grad_enabled():
            return None
        axis, units = _units(module)
        # what derivatives inside the forward pass see is no tensor to differentiate by from outside
        inside = torch._C._functorch.is_functorch_wrapped_tensor(result)
        if inside or result.ndim < -axis or result.shape[axis] != units:
            return None
        probes.append((name, torch.zeros_like(result, requires_grad=True)))
        return result + probes[-1][1]

    return hook


def _units(layer: Any) -> tuple[int, int]:
    """Return the axis of the units in the result of a layer, and their number."""
    return (
        (-1, layer.out_features) if isinstance(layer, nn.Linear) else (-1 - len(layer.kernel_size), layer.out_channels)
    )
