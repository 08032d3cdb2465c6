r"""How far one head of attention is from the mean of its tokens, and its kernel from the one of the mean.

Tokens X are rows, scores :math:`S = X W_Q W_K^\top X^\top / \sqrt{d_h}`, weights P their softmax by rows, and the
output is :math:`q^\top X W_V W_O`, where q is the last row of P, or the mean of all rows.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

Tokens = Float[Tensor, "n t d"]


class Head(NamedTuple):
    """The matrices of a head: queries, keys and values are (d, part), outputs (part, k)."""

    query: Float[Tensor, "d part"]
    key: Float[Tensor, "d part"]
    value: Float[Tensor, "d part"]
    out: Float[Tensor, "part k"]


def drawn_head(d: int, part: int, outputs: int, *, scores: float = 1.0, generator: torch.Generator) -> Head:
    """Return normal matrices of variance one over the rows; queries and keys are `scores` times as large."""
    shapes = (d, part), (d, part), (d, part), (part, outputs)
    query, key, *others = (
        torch.randn(shape, dtype=torch.float64, generator=generator) / shape[0] ** 0.5 for shape in shapes
    )
    return Head(scores * query, scores * key, *others)


def distance_bound(spread: float) -> float:
    """Return the most by which a softmax of scores of this spread is away from uniform, in the sum of moduli."""
    return 2 * math.tanh(spread / 4)


def first_order_bound(spread: float, tokens: int) -> float:
    """Return the most by which a weight differs from (1 + score - mean score) / tokens."""
    return (math.expm1(spread) - spread) / tokens


def scores_of(tokens: Tokens, head: Head, *, last: bool = False) -> Float[Tensor, "n rows t"]:
    """Return the scores of all rows, or of the last one."""
    queries = (tokens[:, -1:] if last else tokens) @ head.query
    return queries @ (tokens @ head.key).mT / head.query.shape[1] ** 0.5


def output(tokens: Tokens, head: Head, *, last: bool = False) -> Float[Tensor, "n k"]:
    """Return the output of the mean over all rows, or of the last row."""
    rows = scores_of(tokens, head, last=last).softmax(-1).mean(1, keepdim=True)
    return (rows @ tokens @ head.value @ head.out)[:, 0]


def kernel(tokens: Tokens, head: Head, *, last: bool = False) -> Float[Tensor, "nk nk"]:
    r"""Return :math:`\frac1n J J^\top` by all four matrices."""
    blocks = torch.func.jacrev(lambda some: output(tokens, some, last=last))(head)
    rows = torch.cat([block.flatten(2).flatten(0, 1) for block in blocks], 1)
    return rows @ rows.mT / len(tokens)


def mean_kernel(tokens: Tokens, head: Head) -> Float[Tensor, "nk nk"]:
    """Return the kernel of the mean token by values and outputs, which is the one of zero scores."""
    mean, (_, _, value, out) = tokens.mean(1), head
    mixed = mean @ value
    eye = torch.eye(out.shape[1], dtype=out.dtype)
    return (torch.kron(mean @ mean.mT, out.mT @ out) + torch.kron(mixed @ mixed.mT, eye)) / len(tokens)


def kernel_bound(tokens: Tokens, head: Head, *, last: bool = False) -> float:
    """Return the most by which the two kernels differ, in the spectral norm: the claim on attention near the mean."""
    read, part = tokens[:, -1:] if last else tokens, head.query.shape[1]
    scores = scores_of(tokens, head, last=last)
    spread = (scores.amax(-1) - scores.amin(-1)).max().item()
    mean = tokens.mean(1, keepdim=True)
    centred = tokens - mean
    radius = centred.norm(dim=-1).max().item()
    covariance = (torch.linalg.matrix_norm(centred, 2).max() ** 2 / tokens.shape[1]).item()
    longest, queries, pull = (
        vectors.norm(dim=-1).max().item()
        for vectors in (read, read @ head.query, read @ head.query @ head.key.mT / part**0.5)
    )
    seen = min(radius**2, math.exp(spread) * covariance)
    moved = min(radius * distance_bound(spread), pull * (math.expm1(spread) / spread if spread else 1.0) * covariance)
    size = torch.linalg.matrix_norm(mean[:, 0], 2).item() / len(tokens) ** 0.5
    key, value, out, both = (
        torch.linalg.matrix_norm(w, 2).item() for w in (head.key, head.value, head.out, head.value @ head.out)
    )
    of_values = (value**2 + out**2) * moved * (2 * size + moved)
    return of_values + (key**2 * longest**2 + queries**2) * both**2 * seen**2 / part
