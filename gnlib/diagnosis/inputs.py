"""Networks that take several tensors, as networks that take one."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gnlib.jacobian.network import Mode, Network
from gnlib.jacobian.trial import networks_of

Inputs = Tensor | Mapping[str, Tensor] | Sequence[Tensor]


class Packed(nn.Module):
    """A module that is called with one tensor, in which the tensors that it takes lie side by side.

    Integers, such as the numbers of tokens, are exact in double precision.
    """

    def __init__(self, module: nn.Module, inputs: Mapping[str, Tensor] | tuple[Tensor, ...]) -> None:
        super().__init__()
        self.module = module
        self.training = module.training
        self._names = [*inputs] if isinstance(inputs, Mapping) else None
        tensors = [*inputs.values()] if isinstance(inputs, Mapping) else [*inputs]
        self._kinds = [(tensor.shape[1:], tensor.dtype) for tensor in tensors]

    def forward(self, packed: Tensor) -> Any:
        """Take the tensors apart and call the module."""
        parts = packed.split([math.prod(shape) for shape, _ in self._kinds], 1)
        tensors = [
            part.reshape(len(packed), *shape).to(part.dtype if dtype.is_floating_point else dtype)
            for part, (shape, dtype) in zip(parts, self._kinds, strict=True)
        ]
        if self._names is None:
            return self.module(*tensors)
        return self.module(**dict(zip(self._names, tensors, strict=True)))


def networks_on(
    module: nn.Module,
    x: Inputs,
    output: Callable[..., Tensor] | None = None,
    mode: Mode | None = None,
    memory: float = 4.0,
) -> list[Network]:
    """Return the function of a module on a batch, on a list of batches, or on several tensors for each sample.

    A list holds batches; a tuple what the module is called with, and a mapping what it is called with by name.
    """
    if not isinstance(module, nn.Module) or not isinstance(x, Mapping | tuple):
        return networks_of(module, x, output, mode, memory)
    tensors = [*x.values()] if isinstance(x, Mapping) else [*x]
    if not tensors or not all(isinstance(tensor, Tensor) and tensor.ndim for tensor in tensors):
        raise TypeError("x is a tuple or a dict with something else than tensors of samples; leave out or convert it.")
    if len({len(tensor) for tensor in tensors}) > 1:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
        raise ValueError(f"The tensors in x have shapes {shapes}; the first axis of each must count the samples.")
    packed = torch.cat([tensor.flatten(1) if tensor.ndim > 1 else tensor[:, None] for tensor in map(_wide, tensors)], 1)
    return networks_of(Packed(module, x), packed, output, mode, memory)


def _wide(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.float64)
