"""Find out which parameters of a network are used by calls of layers alone, whose gradients are products."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from gnlib.checks import SMALL, agree_in_parts, largest_entry
from gnlib.jacobian.columns import write_columns
from gnlib.jacobian.footprint import FIRST
from gnlib.jacobian.network import Factors, Network, Pullback, move, pullback, weights_of
from gnlib.jacobian.record import Form, Leaves, Recorder, Structure, Use, call_recorded, factored_rows

BATCHABLE = {
    f"{name}Backward"
    for name in (
        "AdaptiveAvgPool2D Add Addmm Alias AvgPool2D Bmm Cat Clone ConstantPadNd Convolution Div Elu Expand Flip Gelu "
        "LeakyRelu MaxPool2DWithIndices Mean Mm Mul NativeBatchNorm NativeGroupNorm NativeLayerNorm Permute Relu "
        "Select Sigmoid Silu Slice Softmax Softplus Split Squeeze Stack Sub Sum T Tanh Transpose Unbind UnsafeSplit "
        "UnsafeView Unsqueeze View"
    ).split()
} | {"torch::autograd::AccumulateGrad"}
"""Backward functions that take gradients of several outputs at once; others (cdist, prelu, solve) err in torch 2.13."""

UNKNOWN = Structure([], {})
PART = 2**20  # columns that are compared at a time


def structures_of(networks: Sequence[Network]) -> list[Structure]:
    """Return the structures of networks that differ in their data alone; shapes of their calls may differ."""
    structures = [network.structure or structure_of(network) for network in networks]
    same = all(structure.uses == structures[0].uses for structure in structures)
    return structures if same else [UNKNOWN] * len(structures)


class Near(NamedTuple):
    """Parameters near the given ones, and the gradients there of weighted outputs of the first units."""

    parameters: Factors
    gradients: Sequence[Tensor]


def structure_of(network: Network, near: Near | None = None) -> Structure:
    """Return the structure of a network, if its forward pass is the same for all samples.

    It is tried near the parameters: where the trial of the network was, or at a place of its own.
    """
    structure = recorded_structure(network)
    if structure.uses:
        with suppress(Exception):  # tensors may be wrapped otherwise than in the trial
            if _is_right(network, structure, near or _near(network)):
                return structure
    return UNKNOWN


def recorded_structure(network: Network) -> Structure:
    """Return the structure of a network as its calls on the first sample show it."""
    names = [*network.parameters] if network.vmapped or network.coupled else []
    while names:
        structure = _record_structure(network, names)
        if [*structure.uses] == names:
            return structure._replace(batched=network.vmapped and network.backward <= BATCHABLE)
        names = [*structure.uses]  # once more, as calls are numbered
    return UNKNOWN


def _first(network: Network) -> Tensor:
    return network.x if network.coupled else network.x[:FIRST]


@torch.inference_mode(False)
@torch.no_grad()
def _near(network: Network) -> Near:
    parameters = {
        name: torch.empty_like(p, memory_format=torch.contiguous_format) for name, p in network.parameters.items()
    }
    few = replace(network, x=_first(network), y=None)
    weights = weights_of(few, few.rows // few.units).expand(few.units, -1).reshape(len(few.x), -1)
    call = partial(few, x=few.x)
    with few.as_template():
        move(parameters, few.parameters, lambda: Pullback(call(parameters), ()))
        return Near(parameters, pullback(few, parameters, call, weights).gradients)


@torch.inference_mode(False)
@torch.no_grad()
def _is_right(network: Network, structure: Structure, near: Near) -> bool:
    """Say whether weighted outputs of the first units have the gradient of a plain backward pass, near the parameters.

    The columns of the layers are made and compared a few at a time, which takes no memory of their size.
    """
    few = replace(network, parameters=near.parameters, x=_first(network), y=None)
    with network.as_template():
        weights = weights_of(few, few.rows // few.units)
        (found,) = factored_rows(few, structure, [*near.parameters], few.units, 1, weights)
    sizes = [*map(largest_entry, near.gradients)]
    if not all(map(math.isfinite, sizes)):
        return False
    for (name, p), gradient, size in zip(near.parameters.items(), near.gradients, sizes, strict=True):
        for start in range(0, p.numel(), PART):
            part = slice(start, min(start + PART, p.numel()))
            columns = p.new_empty(few.units, 1, part.stop - start)
            write_columns(columns, network.held, structure, found, name, part)
            some = gradient.reshape(-1)[part]
            if not agree_in_parts([columns.sum((0, 1))], [some], [max(size, SMALL * max(sizes))]):
                return False
    return True


def _record_structure(network: Network, names: list[str]) -> Structure:
    """Record the calls of some parameters, and leave out parameters that are used in any other way.

    A backward pass tells them: they still have a gradient although the graph is cut at all recorded calls.
    """
    leaves: Leaves = {name: p.detach().requires_grad_() for name, p in network.parameters.items()}
    recorder = Recorder({}, {}, {})

    def call(x: Tensor) -> Tensor:
        nonlocal recorder
        recorder, y = call_recorded(network, names, leaves, x)
        return y

    checkpoints = torch.autograd.graph.disable_saved_tensors_hooks("a checkpoint runs a part of a network again")
    with network.as_template(), torch.enable_grad(), checkpoints:
        try:
            y = call(network.x) if network.coupled else torch.vmap(lambda x: call(x[None]))(network.x[:1])
            y = y.sum() + torch.zeros_like(y.sum(), requires_grad=True)  # which has a graph in any case
            gradients = torch.autograd.grad(y, [leaves[name] for name in names], allow_unused=True)
        except Exception:  # of any type: there are many ways not to be recorded
            return UNKNOWN
    if not recorder.intact:
        return UNKNOWN
    return Structure(
        recorder.forms,
        {
            name: recorder.uses[name]
            for name, gradient in zip(names, gradients, strict=True)
            if gradient is None and _are_alike(recorder.uses[name], recorder.forms, leaves[name])
        },
    )


def _are_alike(uses: list[Use], forms: list[Form], parameter: Tensor) -> bool:
    """Say whether all uses of a parameter are of one kind, so that another use is only more positions."""
    kinds = {(use.as_weight, use.mask, forms[use.call].by_feature, forms[use.call].size[1:]) for use in uses}
    return len(kinds) <= 1 and all(as_weight or parameter.numel() == math.prod(size) for as_weight, _, _, size in kinds)
