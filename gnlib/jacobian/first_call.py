"""The first call of a function, on few samples: it tells the number of outputs, and what a backward pass needs."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gnlib.checks import REPAIR
from gnlib.jacobian.intercept import Interceptor
from gnlib.jacobian.network import Factors, Function
from gnlib.jacobian.refusals import attempt, fails_on_fewer, unchanged

FIRST = 2  # samples that are tried before the others
LEAVING = "numpy", "__array__", "tolist", "item", "data_ptr"  # functions by which values leave torch


class First(NamedTuple):
    """The samples that are tried before the others, and what a call on them tells."""

    x: Tensor
    outputs: int  # number k of outputs of a sample
    bytes: float  # of a forward and a backward pass, for each sample
    backward: frozenset[str]  # names of the functions that a backward pass goes through
    hidden: bool  # whether something is computed out of sight of torch


def call_first(function: Function, parameters: Factors) -> First:
    """Call a function on the first samples, or on all of them where it takes no fewer and that is meant.

    The nodes of one graph are samples that a graph network takes together only.
    """
    first, registered = function.x[:FIRST], {id(p): name for name, p in function.module.named_parameters()}
    try:
        y, footprint = _call_measured(function, parameters, first, f"the first {len(first)} samples of x")
    except ValueError as error:
        if len(function.x) <= FIRST:
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
    return First(
        x=first,
        outputs=y.shape[1],
        bytes=footprint.bytes / len(first),
        backward=frozenset(node.name().rstrip("0123456789") for node in nodes),
        hidden=footprint.left or any(type(node).__module__ != "builtins" for node in nodes),
    )


def _call_measured(function: Function, parameters: Factors, x: Tensor, samples: str) -> tuple[Tensor, "_Footprint"]:
    """Return outputs with their graph, and what a backward pass needs."""
    leaves = {name: parameters[name].detach().requires_grad_() for name in function.parameters}

    def call(footprint: _Footprint, saving: AbstractContextManager[Any]) -> tuple[Tensor, _Footprint]:
        with unchanged(parameters), torch.enable_grad(), footprint, saving, warnings.catch_warnings():
            warnings.filterwarnings("error", "None of the inputs have requires_grad")  # a checkpoint without gradients
            y = attempt(function, parameters | leaves, x, samples)
        return y, footprint

    footprint = _Footprint(leaves.values())
    try:
        return call(footprint, torch.autograd.graph.saved_tensors_hooks(footprint.save, lambda tensor: tensor))
    except ValueError as error:
        if error.__cause__ is None:
            raise
        # derivatives within a forward pass (torch.func.grad) forbid hooks
        return call(_Footprint(leaves.values(), results=True), nullcontext())


def nodes_of(y: Tensor) -> set[Any]:
    """Return the nodes of the graph that a backward pass goes through."""
    waiting, nodes = [y.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in nodes:
            nodes.add(node)
            waiting += [before for before, _ in node.next_functions]
    return nodes


class _Footprint(Interceptor):
    """Count the bytes that a backward pass needs of a forward pass.

    They are those of the tensors that autograd saves, or of all results where that cannot be seen, and of the unfolded
    input of a convolution, which no tensor shows: on a CPU, convolutions in double precision are matrix products.
    """

    def __init__(self, leaves: Iterable[Tensor], *, results: bool = False) -> None:
        super().__init__()
        self._saved: dict[int, int] = {}
        self._results, self.left = results, False
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
        self.left |= getattr(function, "__name__", "") in LEAVING
        if self._results and isinstance(result, Tensor):
            self._saved[len(self._saved)] = FIRST * result.nbytes  # of one sample, if they are taken one by one
        if getattr(function, "__name__", "").startswith("conv") and len(args) > 1:
            x, weight = args[:2]
            images = max(x.numel() // x.shape[1], result.numel() // result.shape[1])
            self._unfolded = max(self._unfolded, 8 * images * weight[0].numel())
        return result
