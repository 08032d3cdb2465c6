"""Data in parts: batches with their targets, of one precision, cut to as many samples as are asked for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from gnlib.jacobian.inputs import Batch, Inputs, read_batches
from gnlib.refused import Refused


@dataclass(frozen=True)
class Part:
    """Samples that go through the module together."""

    x: Batch
    y: Any
    samples: int


def parts_of(x: Inputs, y: Any, dtype: torch.dtype, *, targets: bool) -> list[Part]:
    """Return batches in a precision, with their targets, in the same if that is asked for."""
    batches, y = read_batches(x, y)
    lengths = [_length(batch) for batch in batches]
    if 0 in lengths:
        raise Refused("empty", f"Batch {lengths.index(0)} of x is empty; leave it out.")
    if isinstance(y, Tensor):
        if len(y) != sum(lengths):
            what = f"y has {len(y)} samples, x has {sum(lengths)}; pass one target for each."
            raise Refused("wrong-targets", what)
        y = y.split(lengths)
    elif y is None or len(batches) == 1:
        y = [y] * len(batches)
    if len(y) != len(batches):
        what = f"y is a list of {len(y)}, x of {len(batches)} batches; pass the targets of each."
        raise Refused("wrong-targets", what)
    triples = zip(batches, y, lengths, strict=True)
    return [Part(as_dtype(x, dtype), as_dtype(y, dtype) if targets else y, length) for x, y, length in triples]


def as_dtype(tree: Any, dtype: torch.dtype) -> Any:
    """Return tensors of real numbers in a precision, and all others as they are."""

    def one(leaf: Any) -> Any:
        return leaf.detach().to(dtype) if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf

    return tree_map(one, tree)


def narrowed(part: Part, start: int, stop: int) -> Part:
    """Return some of the samples of a part."""
    if (start, stop) == (0, part.samples):
        return part

    def some(leaf: Any) -> Any:
        return leaf[start:stop] if isinstance(leaf, Tensor) and leaf.ndim and len(leaf) == part.samples else leaf

    return Part(tree_map(some, part.x), tree_map(some, part.y), stop - start)


def tensors_of(x: Batch) -> list[Tensor]:
    """Return the tensors of a batch."""
    tensors = [x] if isinstance(x, Tensor) else [*x.values()] if isinstance(x, Mapping) else [*x]
    if not tensors or not all(isinstance(tensor, Tensor) and tensor.ndim for tensor in tensors):
        raise TypeError("x holds something else than tensors of samples; leave it out or convert it.")
    return tensors


def _length(x: Batch) -> int:
    lengths = {len(tensor) for tensor in tensors_of(x)}
    if len(lengths) > 1:
        what = f"The tensors in x have {sorted(lengths)} samples; the first axis of each must count them."
        raise Refused("wrong-shape", what)
    return lengths.pop()
