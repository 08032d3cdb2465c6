"""Changes of a network or of its inputs, each made on a copy, to be measured."""

import copy
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from gnlib.jacobian.inputs import Batch
from gnlib.linear.moment import whiten

OFF_CENTRE = 0.1  # of their root mean square, above which the means of the inputs are worth a trial
USUAL = 0.25, 3.5  # times 1 / sqrt(inputs), the standard deviation of weights: torch draws 0.6 of it, Kaiming 1.4
NAMED = 4  # layers whose names are listed
UNITS = nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d
"""Modules whose parameters have one entry, or row, for each unit."""
NORMS = _NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm


class Change(NamedTuple):
    """Something to do, and the network and the inputs once it is done."""

    what: str
    module: nn.Module
    batches: list[Batch]


def changes_of(module: nn.Module, batches: list[Batch], mode: str | None) -> Iterator[Change]:
    """Yield changes that there is a reason to try; the module and the inputs stay as they are."""
    x = batches[0] if len(batches) == 1 else None
    if isinstance(x, Tensor) and x.is_floating_point() and x.ndim > 1 and len(x) > 1:
        for what, other in _other_inputs(x.detach().double()):
            yield Change(what, module, [other])
    if isinstance(x, Tensor) and mode != "train" and fresh_norms(module):
        yield Change("pass the batch once in training mode", _seen(module, x), batches)
    yield from _rescaled(module, batches)
    yield from _normalised(module, batches)


def fresh_norms(module: nn.Module) -> list[_BatchNorm]:
    """Return the batch normalisations whose running statistics are those of a new one."""

    def is_fresh(norm: _BatchNorm) -> bool:
        mean, variance = norm.running_mean, norm.running_var
        return mean is not None and variance is not None and not mean.any() and bool((variance == 1).all())

    return [m for m in module.modules() if isinstance(m, _BatchNorm) and is_fresh(m)]


def off_scale(module: nn.Module) -> dict[str, float]:
    """Return the layers whose weights are not of a usual size: the root mean square, times the root of the inputs."""
    sizes = {}
    for name, layer in module.named_modules():
        weight = _weight(layer)
        if weight is not None and weight.numel() > 1:
            size = weight.detach().double().square().mean().sqrt().item() * math.sqrt(weight[0].numel())
            if not USUAL[0] <= size <= USUAL[1]:
                sizes[name] = size
    return sizes


def _weight(layer: nn.Module) -> Tensor | None:
    name = "in_proj_weight" if isinstance(layer, nn.MultiheadAttention) else "weight"
    weight = getattr(layer, name, None) if isinstance(layer, (*UNITS, nn.MultiheadAttention)) else None
    return weight if isinstance(weight, Tensor) else None


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


def _seen(module: nn.Module, x: Tensor) -> nn.Module:
    """Let fresh batch normalisations see the batch."""
    module = copy.deepcopy(module).eval()
    for norm in fresh_norms(module):
        norm.train()
        norm.momentum = 1.0  # nothing of the old statistics is left
    with torch.no_grad():
        module(x.to(next(module.parameters()).dtype) if x.is_floating_point() else x)
    return module.eval()


def _rescaled(module: nn.Module, batches: list[Batch]) -> Iterator[Change]:
    """Give weights that are off the usual scale the size of one over the root of their inputs."""
    sizes = {name: size for name, size in off_scale(module).items() if size > 0}  # a head of zeros is meant
    if sizes:
        module = copy.deepcopy(module)
        with torch.no_grad():
            for name, size in sizes.items():
                weight = _weight(module.get_submodule(name))
                assert weight is not None
                weight.div_(size)
        yield Change(f"rescale the weights of {_names([*sizes])} to 1 / sqrt(inputs)", module, batches)


def _normalised(module: nn.Module, batches: list[Batch]) -> Iterator[Change]:
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
        yield Change(what, made, batches)


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
