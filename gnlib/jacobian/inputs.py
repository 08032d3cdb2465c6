"""The one parser of inputs: a tensor, the arguments of a call, batches of either, or a loader, as a list of batches.

| given | meaning |
|---|---|
| tensor | one argument, samples along the first axis |
| tuple of tensors | the arguments of one call |
| dict of tensors | the keyword arguments of one call |
| list of any of these | batches, which may be of different lengths |
| `DataLoader` | batches, each `(*arguments, targets)` unless targets are given apart |
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
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
    for name, given in (("x", x), ("y", y)):
        if isinstance(given, Iterator):
            raise Refused(
                "random-data", f"{name} can be read only once, as a generator; pass a list of batches, or a DataLoader."
            )
    if isinstance(x, DataLoader):
        items = _items(x)
        if y is None and isinstance(items[0], tuple | list) and len(items[0]) > 1:
            items, y = [item[:-1] for item in items], [item[-1] for item in items]
        x = [_arguments(item) for item in items]
    if not isinstance(x, list):
        return [x], y
    if not x:
        raise Refused("empty", "x is an empty list; a list holds batches, of which at least one is needed.")
    return x, _joined(y) if isinstance(y, list | tuple) and len(y) == len(x) else y


def _items(loader: DataLoader[Any]) -> list[Any]:
    """Return what a loader yields, if it begins with the same when it is read once more."""
    items: list[Any] = []
    with torch.random.fork_rng([]):  # of which a loader draws a seed
        try:
            for item in loader:
                items.append(item)
        except Exception as error:
            raise Refused(
                "module-fails",
                f"The loader fails at batch {len(items)}: {error} (Look at its dataset; num_workers=0 shows the line.)",
            ) from error
        if not items:
            raise Refused(
                "empty",
                "The loader has no batch: its dataset is empty, or was read before, or has fewer samples than a batch "
                "and drop_last=True; pass one that has.",
            )
        again = next(iter(loader), None)
    if not _is_same(items[0], again):
        raise Refused(
            "random-data",
            "The first batch of the loader is another one when it is read again: it shuffles, or its samples are "
            "random; set shuffle=False and transforms without chance, or pass one pass over it as two lists, of inputs "
            "and of targets.",
        )
    parts = [len(item) if isinstance(item, tuple | list) else 1 for item in items]
    if odd := [i for i, count in enumerate(parts) if count != parts[0]]:
        raise Refused(
            "wrong-shape",
            f"Batch {odd[0]} of the loader consists of {parts[odd[0]]} parts, batch 0 of {parts[0]}; arguments and "
            "targets were expected in each.",
        )
    return items


def _is_same(item: Any, other: Any) -> bool:
    """Whether two batches have the same tensors; NaN is itself here."""
    pairs = [[leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)] for tree in (item, other)]
    return len(pairs[0]) == len(pairs[1]) and all(
        a.shape == b.shape and bool(((a == b) | (a != a)).all()) for a, b in zip(*pairs, strict=True)
    )


def _joined(y: list[Any] | tuple[Any, ...]) -> Any:
    """Return the targets of all batches as one tensor, where these have the same axes behind the samples."""
    missing = [i for i, part in enumerate(y) if part is None]
    if len(missing) == len(y):
        return None
    if missing:
        raise Refused("no-targets", f"y of batch {missing[0]} is missing; pass the targets of each batch, or of none.")
    tensors = all(isinstance(part, Tensor) for part in y)
    return torch.cat([*y]) if tensors and len({part.shape[1:] for part in y}) == 1 else y


def _arguments(item: Any) -> Batch:
    """Return an item of a loader as what a module is called with."""
    if isinstance(item, list | tuple):
        return item[0] if len(item) == 1 else tuple(item)
    return item


# The arguments of a call, of whatever number, as one tensor


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


def pack(batch: Batch) -> tuple[Layout, Float[Tensor, "n d"]]:
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
