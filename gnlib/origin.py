"""What a page speaks of: digests of the data and of the parameters, so that pages can be told apart later."""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves


class Origin(NamedTuple):
    """What a page speaks of.

    Attributes
    ----------
    dtype
        precision that the network was computed in
    inputs, targets, parameters
        SHA-256 of the bytes, of the parameters with the buffers that outputs depend on; None where there are no targets
    """

    dtype: str
    inputs: str
    targets: str | None
    parameters: str


def origin_of(module: nn.Module, x: Sequence[Any], y: Sequence[Any], dtype: torch.dtype, *, buffers: bool) -> Origin:
    """Return the origin of a page on a module, from the batches of inputs and of targets."""
    own = [*module.parameters(), *(module.buffers() if buffers else ())]
    return Origin(
        dtype=str(dtype).removeprefix("torch."),
        inputs=digest(x),
        targets=digest(y) if any(part is not None for part in y) else None,
        parameters=digest([own]),
    )


def digest(batches: Iterable[Any]) -> str:
    """Return the SHA-256 of batches, trees of tensors: the same wherever the samples are cut into batches.

    Examples
    --------
    >>> import torch
    >>> x = torch.arange(6.0).view(3, 2)
    >>> digest([x])[:8], digest([x[:2], x[2:]]) == digest([x]), digest([x + 1]) == digest([x])
    ('389cd96a', True, False)
    """
    hashes: list[Any] = []
    for batch in batches:
        for i, leaf in enumerate(tree_leaves(batch)):
            if i == len(hashes):
                kind = (leaf.dtype, *leaf.shape[1:]) if isinstance(leaf, Tensor) else type(leaf).__name__
                hashes.append(sha256(repr(kind).encode()))
            hashes[i].update(_bytes(leaf))
    return sha256(b"".join(each.digest() for each in hashes)).hexdigest()


def _bytes(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return repr(leaf).encode()
    return leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
