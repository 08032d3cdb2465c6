"""Make the networks of a module: copies in double precision, tried on all samples.

A trial finds out whether the outputs are a function, and one of each sample by itself. It compares outputs with the
given parameters, and outputs and derivatives with others near them: what couples samples may be seen in derivatives
alone, as a mean over the batch less its own copy without gradient leaves all outputs as they are; and a head of zeros
has the same outputs for all layers below it.
"""

import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gnlib.checks import REPAIR, AxesError, agree_in_parts, as_float64, largest_entry
from gnlib.jacobian.chain import is_chain, of_chain
from gnlib.jacobian.comparison import Comparison
from gnlib.jacobian.footprint import FIRST, First, Footprint, nodes_of
from gnlib.jacobian.inputs import Batch, Packed, pack
from gnlib.jacobian.network import (
    GIB,
    MARGIN,
    Factors,
    Function,
    Mode,
    Network,
    Pullback,
    move,
    perturb,
    pullback,
    pullback_together,
)
from gnlib.jacobian.randomness import Generators, PassedGenerators
from gnlib.jacobian.refusals import attempt, attributes_of, check_mode, check_module, fails_on_fewer, unchanged
from gnlib.jacobian.structure import UNKNOWN, Near, structure_of
from gnlib.refused import Refused

WRAPPERS = nn.DataParallel, nn.parallel.DistributedDataParallel


def networks_of(
    module: nn.Module,
    x: Batch | list[Batch],
    output: Callable[..., Tensor] | None = None,
    mode: Mode | None = None,
    memory: float = 4.0,
) -> list[Network]:
    """Return the function of a module on its batches: one network if all samples are independent and of one shape.

    Otherwise there is a network for each batch, and all of them share the parameters and the buffers of the first.
    """
    batches: list[Any] = x if isinstance(x, list) else [x]
    modules = [module] * len(batches)
    kinds: list[Any] = [
        batch.shape[1:] if isinstance(batch, Tensor) and not batch.is_nested else None for batch in batches
    ]
    if isinstance(module, nn.Module) and any(isinstance(batch, Mapping | tuple) for batch in batches):
        kinds, batches = map(list, zip(*map(pack, batches), strict=True))
        modules = [Packed(module, layout) for layout in kinds]
    first = network_of(modules[0], batches[0], output, mode, memory)
    if len(batches) > 1 and not first.coupled and all(kind == kinds[0] for kind in kinds):
        whole = network_of(modules[0], torch.cat(batches), output, mode, memory)
        if not whole.coupled:  # which a first batch of one sample does not tell
            return [whole]
    others = [network_of(*call, output, mode, memory) for call in zip(modules[1:], batches[1:], strict=True)]
    shared: dict[str, Any] = dict(parameters=first.parameters, frozen=first.frozen, buffers=first.buffers)
    return [first, *(replace(network, **shared) for network in others)]


@torch.inference_mode(False)
def network_of(
    module: nn.Module,
    x: Tensor,
    output: Callable[..., Tensor] | None = None,
    mode: Mode | None = None,
    memory: float = 4.0,
) -> Network:
    """Return the network of a module on one batch of samples."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"module is of type {type(module).__name__}; pass a torch.nn.Module.")
    if mode not in ("eval", "train", None):
        raise Refused("bad-option", f"mode is {mode!r}; it must be 'eval', 'train' or None.")
    while (wrapped := getattr(module, "module" if isinstance(module, WRAPPERS) else "_orig_mod", None)) is not None:
        module = wrapped  # spread over devices, or compiled
    named = dict(module.named_parameters())
    check_module(module, named)
    devices = {p.device for p in named.values()}
    if isinstance(x, Tensor) and devices and x.device not in devices:
        raise Refused("two-devices", f"x is on {x.device} but the module on {devices.pop()}; move one of them.")
    samples = _as_double(x, "x", infinite=isinstance(module, Packed))  # as masks of attention are
    if not samples.ndim:
        raise Refused("wrong-shape", "x has shape (); the first axis of x must count samples.")
    double = {name: _as_double(p, f"The parameter {name}") for name, p in named.items()}
    buffers = {name: b.to(torch.float64) if b.is_floating_point() else b for name, b in module.named_buffers()}
    pairs = [(samples, x), *((double[name], p) for name, p in named.items())]
    copied = sum(8 * copy.numel() for copy, original in pairs if copy.data_ptr() != original.data_ptr())
    function = Function(
        module=module,
        x=samples,
        output=output,
        mode=mode,
        parameters={name: p for name, p in double.items() if named[name].requires_grad},
        frozen={name: p for name, p in double.items() if not named[name].requires_grad},
        buffers=buffers,
        generators=Generators(attributes_of(module), samples.device),
        copied=copied + 2 * sum(b.numel() * b.element_size() for b in buffers.values()),
        own=next((p.dtype for p in named.values() if p.requires_grad), torch.float64),
    )
    return try_function(function, memory)


def _as_double(tensor: Tensor, name: str, *, infinite: bool = False) -> Tensor:
    """Return a tensor in double precision, but integers, such as the numbers of tokens, as they are."""
    double = as_float64(tensor, name, infinite=infinite)
    if not tensor.is_floating_point():
        double = tensor.detach()
    return double.clone() if double.is_inference() else double  # which automatic differentiation cannot take


@torch.inference_mode(False)
@torch.no_grad()
def try_function(function: Function, memory: float) -> Network:
    """Return the network of a function that is tried on all samples; refuse one that has no Jacobian, or several.

    Calls on many samples take at most `memory` GiB; samples that do not fit are tried in parts.
    """
    n, own = len(function.x), {id(p): name for name, p in function.module.named_parameters()}
    if is_chain(function):
        with function.as_template():
            known = call_first(function, function.held, own)
        network = of_chain(Network(**vars(function), **known.traits), memory)
        if network is not None:
            return network
    parameters = {
        name: p.clone(memory_format=torch.contiguous_format)
        for name, p in {**function.frozen, **function.parameters}.items()
    }
    with PassedGenerators() as passed:
        with function.as_template():
            coupled = check_mode(function)
            with function.generators.seen():
                first = call_first(function, parameters, own)
            coupled |= len(first.x) > FIRST
            start = move(parameters, function.parameters, lambda: Pullback(function.evaluate(parameters, first.x), ()))
        fits = max(int((memory * GIB - function.copied) / max(MARGIN * first.bytes, 1)), FIRST)
        comparison = Comparison(function, first, n if coupled else min(fits, n), passed)
        # as a template anew: traces of the first calls in the module must not hide that it is random
        with function.as_template():
            function.generators.advance()
            gradients = comparison.check_first(parameters, start.outputs)
        untried = Network(**vars(function), **first.traits)
        near = Near({name: parameters[name] for name in function.parameters}, gradients)
        structure = UNKNOWN if coupled else structure_of(untried, near)
        del near, gradients  # of the size of the parameters
        with function.as_template():
            function.generators.advance()
            vmapped = not coupled and (bool(structure.uses) or can_vmap(function, parameters, first.outputs))
            if coupled:
                comparison.check_twice(parameters)
            elif n > 1 and not (structure.uses and comparison.alone_by_layers(parameters, structure)):
                coupled = comparison.derivatives_are_coupled(parameters, vmapped)
            perturb(parameters, function.parameters, 0.0)
            y = comparison.outputs(parameters)
            coupled = coupled or (n > 1 and comparison.outputs_are_coupled(parameters, y))
    seen = structure if structure.uses and not coupled else None
    return replace(untried, coupled=coupled, vmapped=vmapped and not coupled, y=y, structure=seen)


def call_first(function: Function, parameters: Factors, own: dict[int, str]) -> First:
    """Call a function on the first samples, or on all of them where it takes no fewer and that is meant.

    The nodes of one graph are samples that a graph network takes together only. The names of the module's own
    parameters, by `id`, tell those that are used where they are not registered.
    """
    first = function.x[:FIRST]
    try:
        y, footprint = _call_measured(function, parameters, first, f"the first {len(first)} samples of x")
    except ValueError as error:
        if len(function.x) <= FIRST or isinstance(error, AxesError):
            raise
        try:
            y, footprint = _call_measured(function, parameters, function.x, "x")
        except ValueError:
            raise error from None
        if function.mode != "train":
            raise fails_on_fewer(function, error.__cause__ or error) from error
        first = function.x
    nodes = nodes_of(y)
    for node in nodes:
        if (leaf := id(getattr(node, "variable", None))) in own:
            raise Refused(
                "no-gradient",
                f"The outputs depend on the parameter {own[leaf]} in a place where it is not registered (such "
                "as a list), so that it cannot be exchanged; use it by its name, or keep it in a ParameterList.",
            )
    if not y.requires_grad:
        raise Refused(
            "no-gradient",
            "The outputs do not depend on the parameters in a way that can be differentiated; do not detach them, "
            "nor compute them under torch.no_grad().",
        )
    if not torch.isfinite(y).all():
        there = "" if torch.isfinite(first).all() else ", as the inputs have"
        raise Refused(
            "not-finite", f"The outputs have NaN or infinite entries in the first {len(first)} samples{there}; {REPAIR}"
        )
    return First(
        x=first,
        outputs=y.shape[1],
        bytes=footprint.bytes / len(first),
        backward=frozenset(node.name().rstrip("0123456789") for node in nodes),
        hidden=footprint.left or any(type(node).__module__ != "builtins" for node in nodes),
    )


def _call_measured(function: Function, parameters: Factors, x: Tensor, samples: str) -> tuple[Tensor, Footprint]:
    """Return outputs with their graph, and what a backward pass needs."""
    leaves = {name: parameters[name].detach().requires_grad_() for name in function.parameters}

    def call(footprint: Footprint, saving: AbstractContextManager[Any]) -> tuple[Tensor, Footprint]:
        with unchanged(parameters), torch.enable_grad(), footprint, saving, warnings.catch_warnings():
            warnings.filterwarnings("error", "None of the inputs have requires_grad")  # a checkpoint without gradients
            y = attempt(function, parameters | leaves, x, samples)
        return y, footprint

    footprint = Footprint(leaves.values())
    try:
        return call(footprint, torch.autograd.graph.saved_tensors_hooks(footprint.save, lambda tensor: tensor))
    except ValueError as error:
        if error.__cause__ is None:
            raise
        # derivatives within a forward pass (torch.func.grad) forbid hooks
        return call(Footprint(leaves.values(), results=True), nullcontext())


def can_vmap(function: Function, parameters: Factors, outputs: int) -> bool:
    """Say whether samples can be differentiated together, with the derivatives that plain backward passes have."""
    first = function.x[:FIRST]
    try:
        _, together = pullback_together(function, parameters, first, first.new_ones(len(first), outputs).double())
    except Exception:  # in-place operations, control flow that depends on data, kernels without a rule: many types
        return False
    for i, x in enumerate(first.split(1)):
        plain = pullback(function, parameters, partial(function, x=x)).gradients
        sizes = [*map(largest_entry, plain)]
        if not agree_in_parts([g[i] for g in together.values()], plain, sizes):
            return False
    return True
