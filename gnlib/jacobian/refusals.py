"""Refuse modules that have no Jacobian, or more than one: by their kinds, and by calls on the first samples."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import is_lazy

from gnlib.checks import REPAIR, agree, as_outputs
from gnlib.jacobian.intercept import Downcasts, Interceptor
from gnlib.jacobian.network import Factors, Function

FIRST = 2  # samples that are tried before the others
CLOSE = 1e-12  # relative difference of outputs that go through the same operations


def check_module(module: nn.Module, named: Mapping[str, nn.Parameter]) -> None:
    """Refuse modules whose parameters have no values, or cannot be exchanged."""
    for name, m in module.named_modules():
        kind = describe(name, m)
        if isinstance(m, torch.jit.ScriptModule):
            raise ValueError(f"{kind} is scripted, and its parameters are fixed; pass the module it was made of.")
        if ".quantized." in type(m).__module__:
            raise ValueError(
                f"{kind} is quantised: integers in place of weights have no gradient; pass the module it was made of, "
                "or one with weights rounded likewise."
            )
    for name, p in named.items():
        if is_lazy(p):
            raise ValueError(f"The parameter {name} has no shape yet; call the module on data once, then pass it.")
        if p.is_meta:
            raise ValueError(
                f"The parameter {name} is on the meta device, where it has no values; make the module on a device that "
                "computes, or load its weights."
            )
    if not any(p.requires_grad for p in named.values()):
        raise ValueError("module has no parameter that requires a gradient; there is nothing to differentiate by.")


def check_mode(function: Function) -> bool:
    """Ask for the mode where known layers leave it open, and say whether they couple the samples."""
    dropout, learning, coupled = [], [], False
    for name, m in function.module.named_modules():
        p = m.p if isinstance(m, _DropoutNd) else getattr(m, "dropout", 0.0)  # attention and RNNs hold a number
        if m.training and isinstance(p, int | float) and p > 0:
            dropout.append(describe(name, m))
        if isinstance(m, _BatchNorm):
            coupled |= m.training or m.running_mean is None
            learning += [describe(name, m)] * m.training
    if function.mode is None and dropout + learning:
        raise ValueError(
            f"{(dropout + learning)[0]} is in training mode; say which function is meant: mode='eval' (running "
            "statistics, no dropout) or mode='train' (statistics of the batch)."
        )
    if dropout:
        raise ValueError(
            f"{dropout[0]} drops out in training mode, and a random function has no Jacobian; pass mode='eval', or "
            "set its probability to 0."
        )
    return coupled


def call_first(function: Function, parameters: Factors) -> tuple[int, float, frozenset[str]]:
    """Return the number of outputs, and bytes and functions of a backward pass for each sample."""
    first = function.x[:FIRST]
    registered = {id(p): name for name, p in function.module.named_parameters()}
    leaves = {name: parameters[name].detach().requires_grad_() for name in function.parameters}
    footprint = _Footprint(leaves.values())
    saving = torch.autograd.graph.saved_tensors_hooks(footprint.save, lambda tensor: tensor)
    with unchanged(parameters), torch.enable_grad(), footprint, saving, warnings.catch_warnings():
        warnings.filterwarnings("error", "None of the inputs have requires_grad")  # a checkpoint that drops gradients
        y = attempt(function, parameters | leaves, first, f"the first {len(first)} samples of x")
    nodes = _nodes_of(y)
    for node in nodes:
        if (leaf := id(getattr(node, "variable", None))) in registered:
            raise ValueError(
                f"The outputs depend on the parameter {registered[leaf]} in a place where it is not registered (such "
                "as a list), so that it cannot be exchanged; use it by its name, or keep it in a ParameterList."
            )
    if not y.requires_grad:
        raise ValueError(
            "The outputs do not depend on the parameters in a way that can be differentiated; do not detach them, "
            "nor compute them under torch.no_grad()."
        )
    if not torch.isfinite(y).all():
        raise ValueError(f"The outputs have NaN or infinite entries in the first {len(first)} samples; {REPAIR}")
    names = frozenset(node.name().rstrip("0123456789") for node in nodes)
    return y.shape[1], footprint.bytes / len(first), names


def attempt(function: Function, parameters: Factors, x: Tensor, samples: str) -> Float[Tensor, "m k"]:
    """Return the outputs on samples that go by this name, or say why a call may fail."""
    try:
        result = function.call(function.tensors(parameters), x)
    except Exception as error:
        hint = (
            "Check the shape of x, and that tensors made in a forward pass take the dtype and the device of its input."
        )
        if not x.is_floating_point():
            hint = (
                f"x is of {x.dtype}, and integers are passed on as they are, such as the numbers of tokens; if they "
                "are images or other measurements, pass x.double(), scaled as in training."
            )
        raise ValueError(f"module fails on {samples}, in double precision: {error} ({hint})") from error
    return as_outputs(result, len(x))


def _nodes_of(y: Tensor) -> set[Any]:
    """Return the nodes of the graph that a backward pass goes through."""
    waiting, nodes = [y.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in nodes:
            nodes.add(node)
            waiting += [before for before, _ in node.next_functions]
    return nodes


def check_outputs(function: Function, parameters: Factors, y: Float[Tensor, "m k"]) -> None:
    """Refuse outputs on the first samples that lose digits, or that depend on a mode or a state nobody asked for."""
    _check_precision(function, parameters, y)
    if function.mode is None:
        _check_training(function, parameters, y)
    if function.mode != "train":
        _check_state(function, parameters, y)


def _check_precision(function: Function, parameters: Factors, y: Float[Tensor, "m k"]) -> None:
    """Refuse a function that computes in a lower precision out of sight, or that cannot be differentiated."""
    leaves = {name: parameters[name].detach().requires_grad_() for name in function.parameters}
    try:
        with torch.enable_grad(), Downcasts() as downcasts:
            again = function({**parameters, **leaves}, function.x[:FIRST])
            function.vjp(leaves, again, torch.ones_like(again))
    except Exception as error:
        raise ValueError(
            f"module cannot be differentiated, in double precision: {error} (Switch checkpoints off, which changes no "
            "number; write functions of your own so that they take the dtype of their input.)"
        ) from error
    # scripted functions, whose operations are out of sight, run as Python functions while operations are recorded
    if downcasts.operations or not agree(again.detach(), y, CLOSE):
        lower = ", ".join(f"{name} returns {dtype}" for name, dtype in downcasts.operations.items())
        raise ValueError(
            f"The network computes in a lower precision than double where it cannot be changed "
            f"({lower or 'in a scripted function'}); write that part so that it takes the dtype of its input."
        )


def _check_state(function: Function, parameters: Factors, y: Float[Tensor, "m k"]) -> None:
    """Refuse outputs that depend on buffers which each call changes."""
    first, tensors = function.x[:FIRST], function.tensors(parameters)
    function.call(tensors, first)
    changed = [name for name, b in function.buffers.items() if not torch.equal(tensors[name], b)]
    if changed and not agree(as_outputs(function.call(tensors, first), len(first)), y):
        name, _, buffer = changed[0].rpartition(".")
        raise ValueError(
            f"The outputs change from call to call: {describe(name, function.module.get_submodule(name))} changes its "
            f"{buffer}, on which they depend; keep it as it is."
        )


def _check_training(function: Function, parameters: Factors, y: Float[Tensor, "m k"]) -> None:
    """Ask for the mode if any layer is another function in training than in evaluation."""
    training = [(name, m) for name, m in function.module.named_modules() if m.training]

    def same_in_evaluation(modules: list[tuple[str, nn.Module]]) -> bool:
        for _, m in modules:
            m.training = False
        try:
            return agree(function(parameters, function.x[:FIRST]), y)
        finally:
            for _, m in modules:
                m.training = True

    if training and not same_in_evaluation(training):
        named = next((each for each in reversed(training) if not same_in_evaluation([each])), training[0])
        raise ValueError(
            f"{describe(*named)} is in training mode, where it is another function than in evaluation; say which one "
            "is meant: mode='eval' or mode='train'."
        )


@contextmanager
def unchanged(parameters: Factors) -> Iterator[None]:
    """Refuse a forward pass that changes parameters; their sums tell it without copies."""
    before = {name: p.sum().item() for name, p in parameters.items()}
    yield
    for name, p in parameters.items():
        if p.sum().item() != before[name]:
            raise ValueError(
                f"The forward pass changes the parameter {name} in place (as max_norm of an embedding does), so that "
                "the function is not the one that is differentiated; change it beforehand and leave that out."
            )


def describe(name: str, module: nn.Module) -> str:
    """Return the name of a module and its type."""
    return f"{name or 'module'} ({type(module).__name__})"


class _Footprint(Interceptor):
    """Count the bytes that a backward pass needs of a forward pass.

    They are those of the tensors that autograd saves, and of the unfolded input of a convolution, which no tensor
    shows: on a CPU, convolutions in double precision are matrix products.
    """

    def __init__(self, leaves: Iterable[Tensor]) -> None:
        super().__init__()
        self._saved: dict[int, int] = {}
        self._unfolded = 0
        self._leaves = {leaf.untyped_storage().data_ptr() for leaf in leaves}

    @property
    def bytes(self) -> int:
        """Bytes so far."""
        return sum(self._saved.values()) + self._unfolded

    def save(self, tensor: Tensor) -> Tensor:
        """Count a tensor that autograd saves."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._leaves:
            self._saved[storage.data_ptr()] = min(storage.nbytes(), tensor.nbytes)
        return tensor.detach()  # with its history, an output that its own function saves would never be freed

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function of torch, and count the unfolded input of a convolution."""
        result = function(*args, **kwargs)
        if getattr(function, "__name__", "").startswith("conv") and len(args) > 1:
            x, weight = args[:2]
            images = max(x.numel() // x.shape[1], result.numel() // result.shape[1])
            self._unfolded = max(self._unfolded, 8 * images * weight[0].numel())
        return result
