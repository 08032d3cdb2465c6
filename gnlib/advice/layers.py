"""Changes within a module: normalisations behind its layers, and other weights at the start."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

CONVOLUTIONS = nn.Conv1d, nn.Conv2d, nn.Conv3d
UNITS = nn.Linear, *CONVOLUTIONS
BATCH_NORMS = {nn.Conv1d: nn.BatchNorm1d, nn.Conv2d: nn.BatchNorm2d, nn.Conv3d: nn.BatchNorm3d}
NORMS = nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm
NORMALISATION = "normalisation"  # the name that it has in the layer before it
LISTED = 4  # layers that are named
Draw = Callable[[Tensor, torch.Generator], object]


class Leaf(NamedTuple):
    """A module without others in it, at its first call."""

    name: str
    module: nn.Module
    output: Any


class Within(NamedTuple):
    """A change in words, and a function that makes it in place."""

    what: str
    apply: Callable[[nn.Module], nn.Module]


@torch.no_grad()
def leaves_of(module: nn.Module, call: Callable[[nn.Module], Any]) -> list[Leaf]:
    """Return the leaves of a module in the order of their calls, from a call of a copy."""
    copied, leaves = copy.deepcopy(module), []

    def seen(name: str, _: nn.Module, __: Any, output: Any) -> None:
        leaves.append(Leaf(name, module.get_submodule(name), output))

    for name, m in copied.named_modules():
        if isinstance(m, UNITS) or not [*m.children()]:
            m.register_forward_hook(partial(seen, name))
    call(copied)
    return leaves


def normalisations(leaves: Sequence[Leaf]) -> Iterator[Within]:
    """Normalise after each hidden layer that has no normalisation behind it, wherever it stands."""
    units = [leaf for leaf in leaves if isinstance(leaf.module, UNITS)]
    known = [leaf for leaf in leaves if isinstance(leaf.module, (*UNITS, *NORMS)) or _is_activation(leaf.module)]
    bare = {
        leaf.name: leaf
        for leaf, following in pairwise([*known, Leaf("", nn.Identity(), None)])
        if isinstance(leaf.module, UNITS) and not isinstance(following.module, NORMS)
        if leaf.name != units[-1].name and len(leaf.module.weight) > 1 and not [*leaf.module.children()]
    }
    for kind, make in (("batch", _batch_norm), ("layer", _layer_norm)):
        norms = {name: maker for name, leaf in bare.items() if (maker := make(leaf.module, leaf.output)) is not None}
        if norms:
            after = ", ".join(norms) if len(norms) <= LISTED else f"{len(norms)} hidden layers"
            yield Within(f"add {kind} normalisation after {after}", partial(_normalise, norms=norms))


def _is_activation(m: nn.Module) -> bool:
    return type(m).__module__ == "torch.nn.modules.activation"


def _batch_norm(layer: nn.Module, output: Tensor) -> Callable[[], nn.Module] | None:
    """Return what makes one over the channels, or over the features where a sample has no other axis."""
    for convolution, kind in BATCH_NORMS.items():
        if isinstance(layer, convolution):
            return partial(kind, output.shape[1])
    return partial(nn.BatchNorm1d, output.shape[1]) if output.ndim == 2 else None


def _layer_norm(layer: nn.Module, output: Tensor) -> Callable[[], nn.Module]:
    if isinstance(layer, CONVOLUTIONS):
        return partial(nn.GroupNorm, 1, output.shape[1])
    return partial(nn.LayerNorm, output.shape[-1])


def _normalise(module: nn.Module, norms: Mapping[str, Callable[[], nn.Module]]) -> nn.Module:
    """Make each normalisation a part of the layer before it, and its hook: code that calls the layer calls it too."""
    for name, make in norms.items():
        layer = module.get_submodule(name)
        layer.add_module(NORMALISATION, make().to(next(layer.parameters())))
        layer.register_forward_hook(_normalised)
    return module


def _normalised(layer: nn.Module, _: Any, output: Tensor) -> Tensor:
    result: Tensor = layer.get_submodule(NORMALISATION)(output)
    return result


def weights(leaves: Sequence[Leaf]) -> Iterator[Within]:
    """Draw the weights of linear maps, convolutions and recurrent layers again, or begin with a head of zeros."""
    layers = [leaf.name for leaf in leaves if isinstance(leaf.module, (*UNITS, nn.RNNBase))]
    if not layers:
        return
    saturates = any(isinstance(leaf.module, nn.Tanh | nn.Sigmoid) for leaf in leaves)
    gain = 5 / 3 if saturates else 2**0.5
    ways: dict[str, Draw] = {
        "orthogonal weights": lambda w, generator: nn.init.orthogonal_(w, gain, generator=generator)
    }
    if not any(isinstance(leaf.module, nn.RNNBase) for leaf in leaves):
        ways["Kaiming's weights"] = lambda w, generator: nn.init.kaiming_normal_(w, generator=generator)
        ways["Xavier's weights"] = lambda w, generator: nn.init.xavier_normal_(
            w, 5 / 3 if saturates else 1.0, generator=generator
        )
    for what, draw in ways.items():
        yield Within(what, partial(_drawn, layers=layers, draw=draw))
    yield Within("the weights that torch draws", partial(_as_torch, layers=layers))
    head = next((leaf for leaf in reversed(leaves) if isinstance(leaf.module, nn.Linear)), None)
    if head is not None and head.module.weight.any():
        yield Within(f"zero weights in {head.name or 'the module'}", partial(_zeroed, name=head.name))


@torch.no_grad()
def _drawn(module: nn.Module, layers: Sequence[str], draw: Draw) -> nn.Module:
    """Draw weights, of recurrent layers those from state to state, gate by gate; biases are zero, but for those."""
    generator = torch.Generator().manual_seed(0)
    for layer in map(module.get_submodule, layers):
        for name, p in layer.named_parameters(recurse=False):
            if isinstance(layer, nn.RNNBase):
                for gate in p.split(layer.hidden_size) if name.startswith("weight_hh") else ():
                    nn.init.orthogonal_(gate, generator=generator)
            elif name == "weight":
                draw(p, generator)
            elif name == "bias":
                p.zero_()
    return module


@torch.no_grad()
def _as_torch(module: nn.Module, layers: Sequence[str]) -> nn.Module:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        for layer in map(module.get_submodule, layers):
            layer.reset_parameters()  # type: ignore[operator]
    return module


@torch.no_grad()
def _zeroed(module: nn.Module, name: str) -> nn.Module:
    for p in module.get_submodule(name).parameters(recurse=False):
        p.zero_()
    return module


def with_bias(module: nn.Module, name: str, value: Tensor) -> nn.Module:
    """Give a layer a bias."""
    with torch.no_grad():
        module.get_submodule(name).get_parameter("bias").copy_(value)
    return module
