"""What an experienced engineer does unasked, for any network: a recipe in one function, frozen with the trial.

1. Real inputs are standardised by feature, those of convolutions and images by channel. Integers and inputs of zeros
   and ones (masks, neighbours, one-hot features) are left alone; constant features are moved only.
2. Targets under the squared error are standardised, each output by itself, but by one number where the outputs are
   made of what the module returns, as pixels are; the module returns raw units.
3. A network without any normalisation gets one after each hidden layer: BatchNorm after convolutions and where a
   sample has one axis, LayerNorm where it has several.
4. Weights of such a network are Kaiming's, or Xavier's with gain 5/3 where there are tanh or sigmoid layers; biases are
   zero. Recurrent layers get Xavier's weights, orthogonal ones from state to state, and an open forget gate.
5. In a network with normalisations only those weights are drawn again, by Xavier's rule, whose deviation is more than
   three times off one over the root of their inputs.

Limits: a layer that is called twice, an output of one number, a gate (by its name) and all layers of a network with
recurrent layers get no normalisation; activations that are functions are taken for ReLU; a network with an activation
of its own class keeps its layers and weights, as one whose authors have prepared it. Nothing is tried.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tests.benchmarks.trial.cases import Case, called

CONVOLUTIONS = nn.Conv1d, nn.Conv2d, nn.Conv3d
BATCH_NORMS = {nn.Conv1d: nn.BatchNorm1d, nn.Conv2d: nn.BatchNorm2d, nn.Conv3d: nn.BatchNorm3d}
LIBRARIES = "torch", "torchvision", "timm", "transformers", "torch_geometric", "segmentation_models_pytorch"
OFF = 3.0
NAME = "engineers_norm"


class Around(nn.Module):
    """A module with standardised inputs, that returns the units of raw targets."""

    def __init__(
        self, module: nn.Module, inputs: dict[Any, tuple[Tensor, Tensor]], targets: tuple[Tensor, Tensor] | None
    ):
        super().__init__()
        self.module, self.inputs, self.targets = module, inputs, targets

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        own = {key: self._moved(key, value) for key, value in [*enumerate(args), *kwargs.items()]}
        places = [own.pop(key) for key in range(len(args))]
        result = self.module(*places, **own)
        return result if self.targets is None else result * self.targets[1] + self.targets[0]

    def _moved(self, key: Any, value: Any) -> Any:
        return (value - self.inputs[key][0]) / self.inputs[key][1] if key in self.inputs else value


def engineer(module: nn.Module, case: Case, x: Any, y: Tensor, seed: int = 0) -> nn.Module:
    """Return a changed copy of a module, for these data: the whole recipe."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return standardised(redrawn(normalised(module, x), x), case, x, y)


def standardised(module: nn.Module, case: Case, x: Any, y: Tensor) -> nn.Module:
    """Return a module around the module: points 1 and 2."""
    convolves = isinstance(next(iter(_called(module, x)), ("", None))[1], CONVOLUTIONS)
    moved = {}
    for key, value in x.items() if isinstance(x, dict) else enumerate(x if isinstance(x, tuple) else (x,)):
        if value.is_floating_point() and value.ndim > 1 and not ((value == 0) | (value == 1)).all():
            moved[key] = _scale(value, 1 if value.ndim > 3 or (value.ndim == 3 and convolves) else value.ndim - 1)
    targets = None
    if case.is_regression:
        mean, spread = _scale(y if case.output is None else y.reshape(-1, 1), 1)
        targets = mean[0], spread[0]
    return Around(module, moved, targets)


def normalised(module: nn.Module, x: Any) -> nn.Module:
    """Return a copy with a normalisation after each hidden layer, where there is none in the network: point 3."""
    module = copy.deepcopy(module)
    units = _called(module, x)
    if _has_norm(module) or _is_prepared(module) or any(isinstance(m, nn.RNNBase) for m in module.modules()):
        return module
    names = [name for name, _, _ in units]
    for name, unit, output in units[:-1]:
        once = names.count(name) == 1 and name != names[-1]
        if once and "gate" not in name and output.shape[_axis(unit, output)] > 1:
            unit.add_module(NAME, _norm(unit, output))
            unit.register_forward_hook(_after)
    return module


def redrawn(module: nn.Module, x: Any) -> nn.Module:
    """Return the module with sensible weights, drawn in place: points 4 and 5."""
    if _is_prepared(module):
        return module
    own = [m for m in module.modules() if isinstance(m, (nn.Linear, nn.Conv1d, nn.Conv2d)) or _is_turned(m)]
    keeps = _has_norm(module, besides=NAME)
    saturates = any(isinstance(m, nn.Tanh | nn.Sigmoid) for m in module.modules())
    last = _called(module, x)[-1][1]
    for layer in own:
        if keeps or layer is not last:
            _draw(layer, keeps, 5 / 3 if saturates else None)
    for layer in module.modules():
        if isinstance(layer, nn.RNNBase):
            _recurrent(layer)
    return module


def _called(module: nn.Module, x: Any) -> list[tuple[str, nn.Module, Tensor]]:
    """Return linear maps, convolutions and layers on graphs in the order of their calls, with what they return."""
    found: list[tuple[str, nn.Module, Tensor]] = []
    copied = copy.deepcopy(module)
    for name, unit in copied.named_modules():
        if _is_unit(unit):
            unit.register_forward_hook(partial(_seen, found, name, module.get_submodule(name)))
    with torch.no_grad():
        called(copied, x)
    on_graphs = [name for name, unit, _ in found if _on_graphs(unit)]
    return [each for each in found if not any(each[0].startswith(f"{name}.") for name in on_graphs)]


def _seen(found: list[Any], name: str, unit: nn.Module, _: nn.Module, __: Any, output: Any) -> None:
    found.append((name, unit, output))


def _is_unit(m: nn.Module) -> bool:
    return isinstance(m, (nn.Linear, *CONVOLUTIONS)) or _is_turned(m) or _on_graphs(m)


def _is_turned(m: nn.Module) -> bool:
    """Whether it is a linear map as transformers has it for GPT-2, with outputs along the last axis of its weight."""
    return type(m).__name__ == "Conv1D"


def _on_graphs(m: nn.Module) -> bool:
    return type(m).__module__.startswith("torch_geometric.nn") and type(m).__name__.endswith("Conv")


def _has_norm(module: nn.Module, besides: str = "") -> bool:
    """Whether there is a normalisation, of torch or of another library, by the name of its class."""
    return any(
        "Norm" in type(m).__name__ for name, m in module.named_modules() if not besides or not name.endswith(besides)
    )


def _is_prepared(module: nn.Module) -> bool:
    """Whether an activation is of the network's own class."""
    leaves = [m for m in module.modules() if not [*m.children()] and not [*m.parameters()]]
    return any(type(m).__module__.split(".")[0] not in LIBRARIES for m in leaves)


def _axis(unit: nn.Module, output: Tensor) -> int:
    return 1 if isinstance(unit, CONVOLUTIONS) else output.ndim - 1


def _norm(unit: nn.Module, output: Tensor) -> nn.Module:
    size = output.shape[_axis(unit, output)]
    for kind, norm in BATCH_NORMS.items():
        if isinstance(unit, kind):
            return norm(size)
    return nn.BatchNorm1d(size) if output.ndim == 2 else nn.LayerNorm(size)


def _after(unit: nn.Module, _: Any, output: Tensor) -> Tensor:
    return unit.get_submodule(NAME)(output)


def _scale(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Return means and deviations along an axis; a deviation of a constant feature is 1."""
    others = [a for a in range(x.ndim) if a != axis]
    mean, spread = x.mean(others, keepdim=True), x.std(others, keepdim=True, correction=0)
    return mean, torch.where(spread > 1e-6 * x.abs().amax(), spread, torch.ones_like(spread))


@torch.no_grad()
def _draw(layer: nn.Module, keeps: bool, gain: float | None) -> None:
    weight = layer.get_parameter("weight")
    weight = weight.mT if _is_turned(layer) else weight
    fan_in = weight[0].numel()
    if keeps:
        off = float(weight.std()) * fan_in**0.5
        if off == 0 or 1 / OFF <= off <= OFF:
            return
        nn.init.xavier_normal_(weight)
    elif gain is None:
        nn.init.kaiming_normal_(weight)
    else:
        nn.init.xavier_normal_(weight, gain)
    if isinstance(layer.bias, Tensor):
        layer.bias.zero_()


@torch.no_grad()
def _recurrent(layer: nn.RNNBase) -> None:
    draws: dict[str, Callable[[Tensor], Tensor]] = {
        "weight_ih": nn.init.xavier_uniform_,
        "weight_hh": nn.init.orthogonal_,
    }
    for name, p in layer.named_parameters(recurse=False):
        if name.startswith("bias"):
            p.zero_()
            if isinstance(layer, nn.LSTM) and name.startswith("bias_hh"):
                p[layer.hidden_size : 2 * layer.hidden_size] = 1.0
        else:
            for gate in p.split(layer.hidden_size):
                draws[name[:9]](gate)
