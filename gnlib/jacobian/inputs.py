"""The one parser of inputs: a tensor, the arguments of a call, batches of either, or a loader, as a list of batches.

| given | meaning |
|---|---|
| tensor | one argument, samples along the first axis |
| tuple of tensors | the arguments of one call |
| dict of tensors | the keyword arguments of one call |
| list of any of these | batches, which may be of different lengths |
| `DataLoader` | batches, each `(*arguments, targets)` unless targets are given apart |
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from gnlib.refused import Refused

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
        raise Refused("empty", "x is an empty list; a list holds batches, of which at least one is needed.")
    if isinstance(y, list | tuple) and len(y) == len(x) and all(isinstance(part, Tensor) for part in y):
        y = torch.cat([*y])
    return x, y


def _arguments(item: Any) -> Batch:
    """Return an item of a loader as what a module is called with."""
    if isinstance(item, list | tuple):
        return item[0] if len(item) == 1 else tuple(item)
    return item
