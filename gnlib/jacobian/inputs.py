"""The one parser of inputs: a tensor, the arguments of a call, batches of either, or a loader, as networks on batches.

| given | meaning |
|---|---|
| tensor | one argument, samples along the first axis |
| tuple of tensors | the arguments of one call |
| dict of tensors | the keyword arguments of one call |
| list of any of these | batches, which may be of different lengths |
| `DataLoader` | batches, each `(*arguments, targets)` unless targets are given apart |
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from gnlib.jacobian.network import Mode, Network
from gnlib.jacobian.packed import Packed, pack
from gnlib.jacobian.trial import network_of

Batch = Tensor | tuple[Tensor, ...] | Mapping[str, Tensor]
Inputs = Batch | list[Batch] | DataLoader[Any]


def read_batches(x: Inputs, y: Any = None) -> tuple[list[Batch], Any]:
    """Return inputs as a list of batches, and the targets of all samples.

    Examples
    --------
    >>> import torch
    >>> loader = torch.utils.data.DataLoader([(torch.ones(2), 0), (torch.zeros(2), 1), (torch.ones(2), 1)], 2)
    >>> batches, targets = read_batches(loader)
    >>> [batch.shape[0] for batch in batches], targets
    ([2, 1], tensor([0, 1, 1]))
    """
    if isinstance(x, DataLoader):
        items = list(x)
        if y is None and items and isinstance(items[0], tuple | list) and len(items[0]) > 1:
            items, y = [item[:-1] for item in items], [item[-1] for item in items]
        x = [_arguments(item) for item in items]
    if not isinstance(x, list):
        return [x], y
    if not x:
        raise ValueError("x is an empty list; a list holds batches, of which at least one is needed.")
    if isinstance(y, list | tuple) and len(y) == len(x) and all(isinstance(part, Tensor) for part in y):
        y = torch.cat([*y])
    return x, y


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


def _arguments(item: Any) -> Batch:
    """Return an item of a loader as what a module is called with."""
    if isinstance(item, list | tuple):
        return item[0] if len(item) == 1 else tuple(item)
    return item
