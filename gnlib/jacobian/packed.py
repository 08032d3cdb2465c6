"""The arguments of a call, of whatever number, as one tensor."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnlib.refused import Refused


class Layout(NamedTuple):
    """How the tensors of a call lie side by side in one: their names, if it is by name, shapes and types."""

    names: tuple[str, ...] | None
    shapes: tuple[torch.Size, ...]
    dtypes: tuple[torch.dtype, ...]


class Packed(nn.Module):
    """A module that is called with one tensor, in which the tensors of its call lie side by side.

    Integers, such as the numbers of tokens, are exact in double precision.
    """

    def __init__(self, module: nn.Module, layout: Layout) -> None:
        super().__init__()
        self.module, self.training = module, module.training
        self._layout = layout

    def forward(self, packed: Tensor) -> Any:
        """Take the tensors apart and call the module."""
        names, shapes, dtypes = self._layout
        tensors = [
            part.reshape(len(packed), *shape).to(part.dtype if dtype.is_floating_point else dtype)
            for part, shape, dtype in zip(packed.split([*map(math.prod, shapes)], 1), shapes, dtypes, strict=True)
        ]
        return self.module(*tensors) if names is None else self.module(**dict(zip(names, tensors, strict=True)))


def pack(batch: Tensor | tuple[Tensor, ...] | Mapping[str, Tensor]) -> tuple[Layout, Float[Tensor, "n d"]]:
    """Return the tensors of a call side by side in one, and how they lie there."""
    batch = (batch,) if isinstance(batch, Tensor) else batch
    tensors = [*batch.values()] if isinstance(batch, Mapping) else [*batch]
    if not tensors or not all(isinstance(tensor, Tensor) and tensor.ndim for tensor in tensors):
        raise TypeError("x is a tuple or a dict with something else than tensors of samples; leave out or convert it.")
    if len({len(tensor) for tensor in tensors}) > 1:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
        raise Refused(
            "wrong-shape", f"The tensors in x have shapes {shapes}; the first axis of each must count the samples."
        )
    for tensor in tensors:
        if tensor.is_complex():
            raise TypeError(
                f"x has a complex tensor among its arguments ({tensor.dtype}); gnlib works with real tensors: pass "
                "torch.view_as_real(...) of it, and torch.view_as_complex in the module."
            )
    names = tuple(batch) if isinstance(batch, Mapping) else None
    layout = Layout(names, tuple(t.shape[1:] for t in tensors), tuple(t.dtype for t in tensors))
    doubles = [tensor.detach().to(torch.float64) for tensor in tensors]
    return layout, torch.cat([t.flatten(1) if t.ndim > 1 else t[:, None] for t in doubles], 1)
