"""Changes within a module: normalisations behind its layers, and other weights at the start."""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
DRAWN = nn.RNNBase, nn.MultiheadAttention  # whose weights are drawn again, as those of linear maps and convolutions
LISTED = 4  # layers that are named
ALIKE = 0.15  # in the logarithm of their size, by which weights may differ and are the same
Draw = Callable[[Tensor, torch.Generator], object]
Redraw = Callable[[list[nn.Module]], None]


class Leaf(NamedTuple):
    """A module without others in it, at its first call."""

    name: str
    module: nn.Module
    output: Any


class Within(NamedTuple):
    """A change in words, and a function that makes it in place."""

    what: str
    apply: Callable[[nn.Module], nn.Module]


def is_unit(m: nn.Module) -> bool:
    """Whether a module is a linear map or a convolution: also of a library that has linear maps of its own.

    Examples
    --------
    >>> is_unit(nn.Linear(1, 1)), is_unit(nn.Embedding(1, 1))
    (True, False)
    """
    own = m._parameters.get("weight")
    return isinstance(m, UNITS) or (own is not None and own.ndim == 2 and not isinstance(m, nn.Embedding))


@torch.no_grad()
def leaves_of(module: nn.Module, call: Callable[[nn.Module], Any]) -> list[Leaf]:
    """Return the leaves of a module, and its attention, in the order of their calls, from a call of a copy.

    Examples
    --------
    >>> net = nn.Sequential(nn.Linear(2, 3), nn.Tanh())
    >>> [leaf.name for leaf in leaves_of(net, lambda m: m(torch.ones(1, 2)))]
    ['0', '1']
    """
    copied, leaves = copy.deepcopy(module), []

    def seen(name: str, _: nn.Module, __: Any, output: Any) -> None:
        leaves.append(Leaf(name, module.get_submodule(name), output))

    for name, m in copied.named_modules():
        if is_unit(m) or isinstance(m, nn.MultiheadAttention) or not [*m.children()]:
            m.register_forward_hook(partial(seen, name))
    call(copied)
    return leaves


def normalisations(leaves: Sequence[Leaf]) -> Iterator[Within]:
    """Normalise after each hidden layer that has no normalisation behind it, wherever it stands.

    Examples
    --------
    >>> net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    >>> [change.what.split()[1] for change in normalisations(leaves_of(net, lambda m: m(torch.ones(2, 2))))]
    ['batch', 'layer', 'RMS']
    """
    units = [leaf for leaf in leaves if is_unit(leaf.module)]
    known = [leaf for leaf in leaves if is_unit(leaf.module) or is_norm(leaf.module) or _is_activation(leaf.module)]
    bare = {
        leaf.name: leaf
        for leaf, following in pairwise([*known, Leaf("", nn.Identity(), None)])
        if is_unit(leaf.module) and not is_norm(following.module)
        if leaf.name != units[-1].name and _size(leaf) > 1 and not [*leaf.module.children()]
    }
    for kind, make in (("batch", _batch_norm), ("layer", _layer_norm), ("RMS", _rms_norm)):
        norms = {name: maker for name, leaf in bare.items() if (maker := make(leaf.module, leaf.output)) is not None}
        if norms:
            yield Within(f"add {kind} normalisation after {_named(bare, [*norms])}", partial(_normalise, norms=norms))


def _named(leaves: Mapping[str, Leaf], names: Sequence[str]) -> str:
    """Return names of layers with what they are, or how many there are, from the first to the last."""
    said = [f"{name} ({type(leaves[name].module).__name__})" for name in names]
    return ", ".join(said) if len(said) <= LISTED else f"{len(said)} hidden layers, {said[0]} to {said[-1]}"


def _size(leaf: Leaf) -> int:
    """Return the number of channels or features of what a layer returns."""
    size: int = leaf.output.shape[1 if isinstance(leaf.module, CONVOLUTIONS) else -1]
    return size


def saturates(leaves: Iterable[Leaf]) -> bool:
    """Whether there is a tanh or a sigmoid."""
    return any(isinstance(leaf.module, nn.Tanh | nn.Sigmoid) for leaf in leaves)


def is_norm(m: nn.Module) -> bool:
    """Whether it is a normalisation, of another library by the name of its class."""
    return isinstance(m, NORMS) or "Norm" in type(m).__name__


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


def _rms_norm(layer: nn.Module, output: Tensor) -> Callable[[], nn.Module] | None:
    return None if isinstance(layer, CONVOLUTIONS) else partial(nn.RMSNorm, output.shape[-1], eps=1e-5)


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
    """Draw the weights of linear maps, convolutions, attention and recurrent layers again, or begin with a zero head.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> net = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 1))
    >>> [change.what for change in weights(leaves_of(net, lambda m: m(torch.ones(2, 20))))]
    ['orthogonal weights', "Kaiming's weights", "Xavier's weights", 'zero weights in 2 (Linear)']
    """
    own: dict[str, nn.Module] = {
        leaf.name: leaf.module for leaf in leaves if is_unit(leaf.module) or isinstance(leaf.module, DRAWN)
    }
    if not own:
        return
    saturating = saturates(leaves)
    gain = 5 / 3 if saturating else 2**0.5
    draws: dict[str, Draw] = {
        "orthogonal weights": lambda w, generator: nn.init.orthogonal_(w, gain, generator=generator)
    }
    if not any(isinstance(layer, nn.RNNBase) for layer in own.values()):
        draws["Kaiming's weights"] = lambda w, generator: nn.init.kaiming_normal_(w, generator=generator)
        draws["Xavier's weights"] = lambda w, generator: nn.init.xavier_normal_(
            w, 5 / 3 if saturating else 1.0, generator=generator
        )
    embeddings = {leaf.name: leaf.module for leaf in leaves if isinstance(leaf.module, nn.Embedding)}
    ways: list[tuple[str, dict[str, nn.Module], Redraw]]
    ways = [(what, own, partial(_drawn, draw=draw)) for what, draw in draws.items()]
    ways.append(("the weights that torch draws", own | embeddings, _as_torch))
    for what, layers, redraw in ways:
        fresh = copy.deepcopy([*layers.values()])
        redraw(fresh)
        orthogonal = what.startswith("orthogonal")
        if not _is_alike(layers.values(), fresh) or (orthogonal and not _are_orthogonal(layers.values())):
            yield Within(what, partial(_again, names=[*layers], redraw=redraw))
    head = next((leaf for leaf in reversed(leaves) if is_unit(leaf.module)), None)
    if head is not None and head.module.get_parameter("weight").any():
        yield Within(f"zero weights in {_named({head.name: head}, [head.name])}", partial(_zeroed, name=head.name))


@torch.no_grad()
def _are_orthogonal(layers: Iterable[nn.Module]) -> bool:
    """Whether the singular values of each matrix are all the same, as those of a draw in double precision."""
    matrices = [p.double().flatten(1) for layer in layers for p in layer.parameters() if p.ndim > 1]
    ends = [torch.linalg.svdvals(matrix)[[0, -1]] for matrix in matrices]
    return all(float(largest) <= (1 + ALIKE) * float(smallest) for largest, smallest in ends)


@torch.no_grad()
def _is_alike(layers: Iterable[nn.Module], others: Iterable[nn.Module]) -> bool:
    """Whether all weights have the size of others, but for what chance makes of so many numbers."""
    for layer, other in zip(layers, others, strict=True):
        for p, q in zip(layer.parameters(), other.parameters(), strict=True):
            sizes = [float(w.double().square().mean().sqrt()) for w in (p, q)]
            if p.ndim > 1 and (not all(sizes) or abs(math.log(sizes[0] / sizes[1])) > ALIKE + 3 / p.numel() ** 0.5):
                return False
    return True


@torch.no_grad()
def _again(module: nn.Module, names: Sequence[str], redraw: Redraw) -> nn.Module:
    """Draw the weights of some layers again."""
    redraw([module.get_submodule(name) for name in names])
    return module


@torch.no_grad()
def _drawn(layers: Sequence[nn.Module], draw: Draw) -> None:
    """Draw weights, of recurrent layers those from state to state, gate by gate; biases are zero, but for those."""
    generator = torch.Generator().manual_seed(0)
    for layer in layers:
        for name, p in layer.named_parameters(recurse=isinstance(layer, nn.MultiheadAttention)):
            if isinstance(layer, nn.RNNBase):
                for gate in p.split(layer.hidden_size) if name.startswith("weight_hh") else ():
                    nn.init.orthogonal_(gate, generator=generator)
            elif name == "in_proj_weight":  # queries, keys and values
                for part in p.chunk(3):
                    draw(part, generator)
            elif name.endswith("weight"):
                draw(p.mT if _is_turned(layer) else p, generator)
            elif name.endswith("bias"):
                p.zero_()


def _is_turned(layer: nn.Module) -> bool:
    """Whether outputs are along the last axis of its weight, as in the linear maps of transformers' GPT-2."""
    return type(layer).__name__ == "Conv1D"


def _as_torch(layers: Sequence[nn.Module]) -> None:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        for layer in layers:
            if isinstance(layer, nn.MultiheadAttention):
                layer.out_proj.reset_parameters()
                layer._reset_parameters()
            elif _is_turned(layer):
                own = nn.Linear(*layer.get_parameter("weight").shape)
                layer.load_state_dict({"weight": own.weight.mT, "bias": own.bias})
            else:
                layer.reset_parameters()  # type: ignore[operator]


@torch.no_grad()
def _zeroed(module: nn.Module, name: str) -> nn.Module:
    for p in module.get_submodule(name).parameters(recurse=False):
        p.zero_()
    return module


def with_bias(module: nn.Module, name: str, value: Tensor) -> nn.Module:
    """Give a layer a bias.

    Examples
    --------
    >>> with_bias(nn.Linear(1, 2), "", torch.tensor([1.0, 2.0]))(torch.zeros(1, 1))
    tensor([[1., 2.]], grad_fn=<AddmmBackward0>)
    """
    with torch.no_grad():
        module.get_submodule(name).get_parameter("bias").copy_(value)
    return module
