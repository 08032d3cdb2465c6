"""Chains of layers of torch, which are functions of each sample by itself: that is known, and is not tried."""

from dataclasses import replace

from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from gnlib.jacobian.network import Function, Network
from gnlib.jacobian.passes import outputs_of
from gnlib.jacobian.structure import recorded_structure

BY_ENTRY = nn.ELU, nn.GELU, nn.Identity, nn.LeakyReLU, nn.ReLU, nn.Sigmoid, nn.SiLU, nn.Softplus, nn.Tanh
BY_SAMPLE = nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.AvgPool2d, nn.MaxPool2d, nn.AdaptiveAvgPool2d, nn.Flatten
KNOWN = {nn.Sequential, *BY_ENTRY, *BY_SAMPLE}


def is_chain(function: Function) -> bool:
    """Whether a module is a chain of layers that take samples by themselves, draw nothing and change nothing.

    A layer with a hook, with a forward pass of its own or with a tensor that is not registered is not known.
    """
    module = function.module
    plain = type(function.x) is Tensor and all(type(p) is nn.Parameter for p in module.parameters())
    alone = function.output is None and not _has_any_global_hook()
    return plain and alone and all(map(_is_known, module.modules()))


def _is_known(m: nn.Module) -> bool:
    kind, attributes = type(m), vars(m)
    changed = "forward" in attributes or kind.forward.__module__ != kind.__module__
    holds = any(isinstance(value, Tensor) for value in attributes.values())
    return kind in KNOWN and not (changed or holds or m._forward_hooks or m._forward_pre_hooks)


def of_chain(network: Network, memory: float) -> Network | None:
    """Return the network of a chain with its structure and outputs, if a sample goes through it by itself.

    It does not where torch takes the first axis for channels, as in a convolution of two axes.
    """
    structure = recorded_structure(network)
    if [*structure.uses] != [*network.parameters]:
        return None
    return replace(network, structure=structure, y=outputs_of([network], memory))
