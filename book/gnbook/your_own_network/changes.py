"""The changes of a network or of its inputs that the trial of the guide trains, each made on a copy."""

import copy
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnlib import whiten
from gnlib.advice.layers import NORMS, UNITS
from gnlib.diagnosis.remarks import off_scale

OFF_CENTRE = 0.1  # of their root mean square, above which the means of the inputs are worth a trial
NAMED = 4  # layers whose names are listed


class Change(NamedTuple):
    """Something to do, and the network and the inputs once it is done."""

    what: str
    module: nn.Module
    x: Float[Tensor, "n ..."]


def changes_of(module: nn.Module, x: Float[Tensor, "n ..."]) -> Iterator[Change]:
    """Yield changes that there is a reason to try; the module and the inputs stay as they are."""
    for what, other in _other_inputs(x.detach().double()):
        yield Change(what, module, other)
    yield from _rescaled(module, x)
    yield from _normalised(module, x)


def _other_inputs(x: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Centre the inputs, feature by feature or channel by channel, give them the size of one, or whiten them."""
    mean = x.mean((0, *range(2, x.ndim)), keepdim=True)
    centred = x - mean
    spread = centred.square().mean().sqrt()
    if spread > 0 and not 0.5 < spread < 2:
        yield "centre the inputs and divide them by their standard deviation", centred / spread
    elif spread > 0 and mean.square().mean().sqrt() > OFF_CENTRE * x.square().mean().sqrt():
        yield "centre the inputs", centred
    if x.ndim == 2 and len(x) > x.shape[1] and spread > 0:
        yield "whiten the inputs", whiten(x)


def _rescaled(module: nn.Module, x: Float[Tensor, "n ..."]) -> Iterator[Change]:
    """Give weights that are off the usual scale the size of one over the root of their inputs."""
    sizes = {name: size for name, size in off_scale(module).items() if size > 0}  # a head of zeros is meant
    if sizes:
        module = copy.deepcopy(module)
        with torch.no_grad():
            for name, size in sizes.items():
                layer = module.get_submodule(name)
                key = "in_proj_weight" if isinstance(layer, nn.MultiheadAttention) else "weight"
                layer.get_parameter(key).div_(size)
        yield Change(f"rescale the weights of {_names([*sizes])} to 1 / sqrt(inputs)", module, x)


def _normalised(module: nn.Module, x: Float[Tensor, "n ..."]) -> Iterator[Change]:
    """Add a normalisation after each hidden layer of a chain of layers that has none there."""
    leaves = [*_leaves(module)]
    layers = [name for name, leaf in leaves if isinstance(leaf, UNITS)]
    chain: list[nn.Module] = []
    after: dict[str, list[str]] = {}
    for (name, leaf), (_, following) in pairwise([*leaves, ("", nn.Identity())]):
        chain.append(leaf)
        if isinstance(leaf, UNITS) and name != layers[-1] and len(leaf.weight) > 1 and not isinstance(following, NORMS):
            kind, width = "LayerNorm" if isinstance(leaf, nn.Linear) else "GroupNorm(1)", len(leaf.weight)
            norm = nn.LayerNorm(width) if isinstance(leaf, nn.Linear) else nn.GroupNorm(1, width)
            chain.append(norm.to(leaf.weight).train(leaf.training))
            after.setdefault(kind, []).append(name)
    if after:
        made = nn.Sequential(*chain)
        made.training = module.training
        what = "add " + " and ".join(f"{kind} after {_names(names)}" for kind, names in after.items())
        yield Change(what, made, x)


def _leaves(module: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules that a chain calls one after another, chains within it taken apart."""
    if type(module) is not nn.Sequential:
        yield name.removesuffix("."), module
        return
    for key, child in module._modules.items():
        yield from _leaves(child, f"{name}{key}.")


def _names(layers: Sequence[str]) -> str:
    """Return the names of a few layers, or how many they are."""
    return ", ".join(layer or "the module" for layer in layers) if len(layers) <= NAMED else f"{len(layers)} layers"
