"""The memory that a backward pass takes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode


class Footprint(TorchFunctionMode):
    """Memory of a backward pass through what is computed in this context.

    It takes the tensors that autograd saves, and the unfolded input of a convolution, which no tensor shows: on a CPU,
    convolutions in double precision are matrix products.
    """

    def __init__(self, leaves: Iterable[Tensor]) -> None:
        super().__init__()
        self._saved: dict[int, int] = {}
        self._unfolded = 0
        self._leaves = {leaf.untyped_storage().data_ptr() for leaf in leaves}

    @property
    def bytes(self) -> int:
        """Bytes seen so far."""
        return sum(self._saved.values()) + self._unfolded

    def save(self, tensor: Tensor) -> Tensor:
        """Take note of a tensor that autograd saves."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._leaves:
            self._saved[storage.data_ptr()] = min(storage.nbytes(), tensor.nbytes)
        return tensor

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch, and see whether it is a convolution."""
        result = function(*args, **(kwargs or {}))
        if getattr(function, "__name__", "").startswith("conv") and len(args) > 1:
            x, weight = args[:2]
            images = max(x.numel() // x.shape[1], result.numel() // result.shape[1])
            self._unfolded = max(self._unfolded, 8 * images * weight[0].numel())
        return result
