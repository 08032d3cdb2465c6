"""What a call leaves behind: the number of outputs, the graph, and the bytes that a backward pass needs."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gnlib.jacobian.intercept import Interceptor

FIRST = 2  # samples that are tried before the others
LEAVING = "numpy", "__array__", "tolist", "item", "data_ptr"  # functions by which values leave torch


class First(NamedTuple):
    """The samples that are tried before the others, and what a call on them tells."""

    x: Tensor
    outputs: int  # number k of outputs of a sample
    bytes: float  # of a forward and a backward pass, for each sample
    backward: frozenset[str]  # names of the functions that a backward pass goes through
    hidden: bool  # whether something is computed out of sight of torch

    @property
    def traits(self) -> dict[str, Any]:
        """What is known of a network before it is tried."""
        return dict(outputs=self.outputs, bytes_per_sample=self.bytes, backward=self.backward)


def nodes_of(y: Tensor) -> set[Any]:
    """Return the nodes of the graph that a backward pass goes through."""
    waiting, nodes = [y.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in nodes:
            nodes.add(node)
            waiting += [before for before, _ in node.next_functions]
    return nodes


class Footprint(Interceptor):
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
        """Count a tensor that autograd saves; a sparse one is a part of the module, such as the edges of a graph."""
        if tensor.layout is not torch.strided:
            return tensor.detach()
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._leaves:
            self._saved[storage.data_ptr()] = min(storage.nbytes(), tensor.nbytes)
        return tensor.detach()  # with its history, an output that its own function saves would never be freed

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function of torch, and count the unfolded input of a convolution."""
        result = function(*args, **kwargs)
        self.left |= getattr(function, "__name__", "") in LEAVING
        if self._results and isinstance(result, Tensor) and result.layout is torch.strided:
            self._saved[len(self._saved)] = FIRST * result.nbytes  # of one sample, if they are taken one by one
        if getattr(function, "__name__", "").startswith("conv") and len(args) > 1:
            x, weight = args[:2]
            images = max(x.numel() // x.shape[1], result.numel() // result.shape[1])
            self._unfolded = max(self._unfolded, 8 * images * weight[0].numel())
        return result
