"""Refuse modules that have no Jacobian, or more than one, or that lose digits; say why a call fails."""

import os
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import is_lazy

from gnlib.checks import agree, as_outputs
from gnlib.jacobian.intercept import Downcasts
from gnlib.jacobian.network import Factors, Function, pullback, weights_of
from gnlib.refused import Refused

TORCH, LIBRARY = os.path.dirname(torch.__file__), os.path.dirname(os.path.dirname(__file__))
RANDOM = "The outputs change from call to call: a random function has no Jacobian; fix its noise"
CLOSE = 1e-12  # relative difference of outputs that go through the same operations
NEARBY, ROUGH = 1e-5, 1e-8  # part of that way, of a tenth, and relative jump: less than single precision resolves


def check_module(module: nn.Module, named: Mapping[str, nn.Parameter]) -> None:
    """Refuse modules whose parameters have no values, or cannot be exchanged."""
    for name, m in module.named_modules():
        kind = describe(name, m)
        if isinstance(m, torch.jit.ScriptModule):
            raise Refused(
                "no-parameters", f"{kind} is scripted, and its parameters are fixed; pass the module it was made of."
            )
        if ".quantized." in type(m).__module__:
            raise Refused(
                "no-parameters",
                f"{kind} is quantised: integers in place of weights have no gradient; pass the module it was made of, "
                "or one with weights rounded likewise.",
            )
    for name, p in named.items():
        if is_lazy(p):
            raise Refused(
                "no-parameters", f"The parameter {name} has no shape yet; call the module on data once, then pass it."
            )
        if p.is_meta:
            raise Refused(
                "no-parameters",
                f"The parameter {name} is on the meta device, where it has no values; make the module on a device that "
                "computes, or load its weights.",
            )
    if not any(p.requires_grad for p in named.values()):
        raise Refused(
            "no-parameters", "module has no parameter that requires a gradient; there is nothing to differentiate by."
        )


def check_mode(function: Any) -> bool:
    """Ask for the `mode` of a `module` where known layers leave it open, and say whether they couple the samples."""
    dropout, learning, coupled = [], [], False
    for name, m in function.module.named_modules():
        p = m.p if isinstance(m, _DropoutNd) else getattr(m, "dropout", 0.0)  # attention and RNNs hold a number
        if m.training and isinstance(p, int | float) and p > 0:
            dropout.append(describe(name, m))
        if isinstance(m, _BatchNorm):
            coupled |= m.training or m.running_mean is None
            learning += [describe(name, m)] * m.training
    if function.mode is None and dropout + learning:
        raise Refused(
            "mode-unclear",
            f"{(dropout + learning)[0]} is in training mode; say which function is meant: mode='eval' (running "
            "statistics, no dropout) or mode='train' (statistics of the batch).",
        )
    if dropout:
        raise Refused(
            "random-module",
            f"{dropout[0]} drops out in training mode, and a random function has no Jacobian; pass mode='eval', or "
            "set its probability to 0.",
        )
    return coupled


def fails_on_fewer(function: Function, error: BaseException) -> ValueError:
    """Return the refusal of a function that takes all samples together, and no part of them."""
    return Refused(
        "module-fails",
        f"module fails on fewer samples, though not on all {len(function.x)} of x: {error} (A squeeze() drops the axis "
        "of the samples where there is one; name the axis. If the outputs of a sample are meant to depend on the "
        "others, as those of the nodes of a graph, pass mode='train'.)",
    )


def attempt(function: Function, parameters: Factors, x: Tensor, samples: str) -> Float[Tensor, "m k"]:
    """Return the outputs on samples that go by this name, or say where and why a call may fail."""
    try:
        result = function.call(function.tensors(parameters), x)
    except Exception as error:
        raise Refused(
            "module-fails", f"module fails on {samples}, in double precision{line_of(error)}: {error} ({hint_of(x)})"
        ) from error
    return as_outputs(result, len(x))


def hint_of(x: Tensor) -> str:
    """Return what to look at where a call with this input fails."""
    if x.is_floating_point():
        return (
            "Check the shape of x, and that tensors made in a forward pass take the dtype and the device of its input."
        )
    return (
        f"x is of {x.dtype}, and integers are passed on as they are, such as the numbers of tokens; if they are images "
        "or other measurements, pass x.double(), scaled as in training."
    )


def line_of(error: BaseException) -> str:
    """Return the last line of the user's own code on the way to an error, if there is one."""
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((TORCH, LIBRARY)) and "site-packages" not in frame.filename
    ]
    return f" (line {own[-1].lineno} of {own[-1].name}: {own[-1].line})" if own and own[-1].line else ""


def check_outputs(
    function: Function, parameters: Factors, first: Tensor, hidden: bool, y: Float[Tensor, "m k"]
) -> Sequence[Tensor]:
    """Return gradients of weighted outputs; refuse lost digits, and a mode or a state nobody asked for."""
    gradients = _check_precision(function, parameters, first, hidden, y)
    if function.mode is None:
        _check_training(function, parameters, first, y)
    if function.mode != "train":
        _check_state(function, parameters, first, y)
    return gradients


def _check_precision(
    function: Function, parameters: Factors, first: Tensor, hidden: bool, y: Float[Tensor, "m k"]
) -> Sequence[Tensor]:
    """Refuse a function that computes in a lower precision out of sight, or that cannot be differentiated."""
    weights = weights_of(function, y.shape[1]).expand(y.shape)
    try:
        for _ in range(2):  # twice if a state that changes now and then has made the difference
            with Downcasts() as downcasts:
                again, gradients = pullback(function, parameters, partial(function, x=first), weights)
            if same := agree(again, y, CLOSE):
                break
    except Exception as error:
        raise Refused(
            "no-gradient",
            f"module cannot be differentiated, in double precision: {error} (Switch checkpoints off, which changes no "
            "number; write functions of your own so that they take the dtype of their input.)",
        ) from error
    # scripted functions, whose operations are out of sight, run as Python functions while operations are recorded
    rounds = not same or (hidden and _is_rough(function, parameters, first))
    if downcasts.operations or rounds:
        lower = ", ".join(f"{name} returns {dtype}" for name, dtype in downcasts.operations.items())
        raise Refused(
            "low-precision",
            f"The network computes in a lower precision than double where it cannot be changed "
            f"({lower or 'out of sight of torch'}); write that part so that it takes the dtype of its input.",
        )
    return gradients


def _is_rough(function: Function, parameters: Factors, first: Tensor) -> bool:
    """Say whether outputs jump by single precision over a small part of the way from the given parameters.

    Over such a distance all that is computed in double precision goes nearly straight on.
    """
    a, b, c = (
        function.evaluate(
            {name: parameters[name].lerp(p, step * NEARBY) for name, p in function.parameters.items()}, first
        )
        for step in range(3)
    )
    return bool((a - 2 * b + c).abs().max() > ROUGH * b.abs().max())


def _check_state(function: Function, parameters: Factors, first: Tensor, y: Float[Tensor, "m k"]) -> None:
    """Refuse outputs that depend on buffers which each call changes."""
    tensors = function.tensors(parameters)
    function.call(tensors, first)
    plain = {name: b for name, b in function.buffers.items() if b.layout == torch.strided and not b.is_meta}
    changed = [name for name, b in plain.items() if not torch.equal(tensors[name], b)]
    if changed and not agree(as_outputs(function.call(tensors, first), len(first)), y):
        name, _, buffer = changed[0].rpartition(".")
        raise Refused(
            "random-module",
            f"The outputs change from call to call: {describe(name, function.module.get_submodule(name))} changes its "
            f"{buffer}, on which they depend; keep it as it is.",
        )


def _check_training(function: Function, parameters: Factors, first: Tensor, y: Float[Tensor, "m k"]) -> None:
    """Ask for the mode if any layer is another function in training than in evaluation."""
    training = [(name, m) for name, m in function.module.named_modules() if m.training]

    def same_in_evaluation(modules: list[tuple[str, nn.Module]]) -> bool:
        for _, m in modules:
            m.training = False
        try:
            return agree(function.evaluate(parameters, first), y)
        finally:
            for _, m in modules:
                m.training = True

    if training and not same_in_evaluation(training):
        named = next((each for each in reversed(training) if not same_in_evaluation([each])), training[0])
        raise Refused(
            "mode-unclear",
            f"{describe(*named)} is in training mode, where it is another function than in evaluation; say which one "
            "is meant: mode='eval' or mode='train'.",
        )


def state_of(module: nn.Module) -> dict[tuple[str, str], object]:
    """Return numbers, texts and sizes of containers that modules hold as attributes."""
    return {
        (name, attribute): len(value) if isinstance(value, list | dict | set) else value
        for name, m in module.named_modules()
        for attribute, value in vars(m).items()
        if value is None or isinstance(value, int | float | str | list | dict | set)
    }


def attributes_of(module: nn.Module) -> Iterator[object]:
    """Yield what modules hold as attributes, but for other modules."""
    for m in module.modules():
        yield from (value for name, value in vars(m).items() if name != "_modules")


@contextmanager
def unchanged(parameters: Factors) -> Iterator[None]:
    """Refuse a forward pass that changes parameters; their sums tell it without copies."""
    before = {name: p.sum().item() for name, p in parameters.items()}
    yield
    for name, p in parameters.items():
        if p.sum().item() != before[name]:
            raise Refused(
                "random-module",
                f"The forward pass changes the parameter {name} in place (as max_norm of an embedding does), so that "
                "the function is not the one that is differentiated; change it beforehand and leave that out.",
            )


def describe(name: str, module: nn.Module) -> str:
    """Return the name of a module and its type."""
    return f"{name or 'module'} ({type(module).__name__})"
