"""What a transformer is like at its start, one factor at a time round a base."""

import math
import statistics
from dataclasses import asdict

import torch
from jaxtyping import Float
from torch import Tensor

import gnlib
from gnbook.attention.models import BRANCHES, LETTERS, Attention, Shape, Transformer, build, samples
from gnbook.results import Cell
from gnbook.shared.training import half_squared_error
from gnbook.shared.tuning import constant_loss
from gnlib.laws import deep_linear

GOAL = 0.3
"""Loss to reach, over the one of the best constant."""
RATE = 0.5
"""Learning rate, over one by the largest eigenvalue: at one itself some of these networks diverge."""
Changes = dict[str, int | float | str | bool]

FACTORS: dict[str, list[Changes]] = {
    "base": [{}],
    "width": [{"width": width} for width in (16, 64)],
    "depth": [{"depth": depth, "branch": b} for b in BRANCHES for depth in (1, 2, 4, 8)],
    "norm": [{"norm": norm, "depth": depth} for norm in ("after", "none") for depth in (1, 2, 8)],
    "heads": [{"heads": heads} for heads in (1, 16)],
    "embedding": [{"embedding": scale} for scale in (0.02, 1.0)],
    "gain": [{"gain": gain} for gain in (0.02 * 32**0.5, 3**-0.5, 2.0)],
    "scores": [{"scores": scale} for scale in (0.0, 0.25, 0.5, 2.0, 4.0)],
    "weights": [{"weights": weights} for weights in ("orthogonal", "uneven", "same")],
    "shift": [{"shift": shift} for shift in (0.5, 1.0, 10.0)],
    "tied": [{"tied": True}, {"tied": True, "embedding": 0.02}],
}
"""Changes of the base; a tied head is for text alone."""


def cases(factor: str, data: str) -> list[Changes]:
    """Return the changes of a factor that the data allow."""
    return [changes for changes in FACTORS[factor] if data == "text" or "tied" not in changes]


def measure(data: str, seed: int, n: int, changes: Changes, *, device: torch.device | str = "cpu") -> dict[str, Cell]:
    r"""Return what a transformer is like.

    `kappa` is of the Gauss-Newton matrix; `lower`, `upper` and `effective` are of the law of waiting, for `GOAL` times
    the loss of the best constant, at a learning rate of a half over the largest eigenvalue.

    `queries` is the part of the trace of the kernel that all queries and keys have, `values` that of values and
    outputs, and `queries_smallest` the part of queries and keys of the smallest eigenvalue. `last_ratio` is the first
    over the second in the last block, and `law_ratio` what it is in the mean over weights where attention is uniform
    and the head follows. `spread` is the mean over rows of the largest score less the smallest, `apart` the mean
    distance of weights of attention from uniform ones, in the sum of absolute values;
    both over all blocks. `weights_kappa` is the median condition number of the matrices of queries, keys and values,
    with what is added to them.
    """
    x, y = (part.to(device) for part in samples(data, n))
    network = build(data, seed, **changes).to(device)
    shape = Shape(**changes)
    problem = gnlib.GaussNewton(network, x, y, "mse")
    start, goal = half_squared_error(network(x), y).item(), GOAL * constant_loss(y, "mse")
    largest = float(problem.eigenvalues().max())
    waits = problem.waiting(goal / start, rate=RATE / largest)
    shares = problem.by_layer().layers
    traces = {part.layer: part.trace for part in shares}
    row: dict[str, Cell] = {"data": data, "seed": seed, "n": n, **asdict(shape)}
    row["embedding"] = shape.width**-0.5 if shape.embedding is None else shape.embedding
    last = [name for name, layer in network.named_modules() if isinstance(layer, Attention)][-1]
    queries, values = parts_of(traces)
    last_queries, last_values = parts_of({name: trace for name, trace in traces.items() if name.startswith(last)})
    row |= {
        "kappa": float(problem.condition_number().value),
        "largest": largest,
        "initial_loss": start,
        "lower": waits.lower,
        "upper": waits.upper,
        "effective": waits.effective_condition_number,
        "queries": queries,
        "values": values,
        "queries_smallest": parts_of({part.layer: part.smallest for part in shares})[0],
        "last_ratio": last_queries / last_values,
        "law_ratio": law_ratio(network, x, shape),
        "weights_kappa": weights_kappa(network),
        **nearness(network, x),
    }
    return row


def law_of_depth(
    depth: int, *, norm: str = "before", branch: str = "plain", width: int = 32, rank: int = len(LETTERS)
) -> float:
    """Return the condition number of the linear network with as many branches and skips, on white data.

    A branch of variance one stands beside a skip of one where there is a normalisation after each sum, or none. With
    normalisation before the branches the tokens grow: after j branches a branch counts 1 / sqrt(j + 1). An embedding
    and a head are counted; activations and attention are not.

    >>> [round(law_of_depth(depth, norm="none")) for depth in (1, 4, 16)]
    [12, 41, 311]
    >>> [round(law_of_depth(depth, branch="drawn"), 1) for depth in (1, 4, 16)]
    [11.9, 21.8, 29.9]
    """
    branches = 2 * depth
    scales = [1.0 if norm != "before" else (j + 1) ** -0.5 for j in range(branches)]
    if branch != "plain":
        scales = [branches**-0.5] * branches
    rates = [1 / branches if branch == "multiplier" else 1.0] * branches
    if branch == "plain":
        rates = [scale**2 for scale in scales]  # a gradient by a branch sees the normalised tokens
    ends = {"scale": [1.0, *scales, 1.0], "skip": [0.0, *[1.0] * branches, 0.0], "rates": [1.0, *rates, 1.0]}
    return deep_linear(branches + 2, width, rank, inputs=rank, **ends).kappa


def parts_of(shares: dict[str, float]) -> tuple[float, float]:
    """Return the shares of all queries and keys, and of all values and outputs, by names of layers."""
    kinds = ("query", "key"), ("value", "out")
    queries, values = (sum(share for name, share in shares.items() if name.endswith(kind)) for kind in kinds)
    return queries, values


def tokens_of(network: Transformer, x: Float[Tensor, "n t inputs"]) -> list[Float[Tensor, "n t width"]]:
    """Return what enters each attention."""
    found: list[Tensor] = []
    layers = [layer for layer in network.modules() if isinstance(layer, Attention)]
    hooks = [layer.register_forward_pre_hook(lambda _, tokens: found.append(tokens[0].detach())) for layer in layers]
    with torch.no_grad():
        network(x)
    for hook in hooks:
        hook.remove()
    return found


def law_ratio(network: Transformer, x: Float[Tensor, "n t inputs"], shape: Shape) -> float:
    r"""Return the expected trace of queries and keys over that of values and outputs in the last block.

    With uniform attention and a linear head after it, on tokens of mean z and covariance C, it is
    :math:`s^2 (\sigma_Q^2 + \sigma_K^2) \sigma_V^2 \sigma_O^2 / (\sigma_V^2 + \sigma_O^2)` times
    :math:`\sum |v|^2 \operatorname{tr} C^2 / (d^2 \sum |z|^2)` over the samples, with s the size of queries and keys;
    v is z for the mean token, else the last token.
    """
    tokens = tokens_of(network, x)[-1]
    mean = tokens.mean(1)
    centred = tokens - mean[:, None]
    squares = (centred @ centred.mT / tokens.shape[1]).square().sum((1, 2))
    reads = tokens[:, -1] if network.causal else mean
    ratio = (reads.square().sum(-1) * squares).sum() / (mean.square().sum() * shape.width**2)
    gain = shape.gain**2
    out = gain / (2 * shape.depth) if shape.branch == "drawn" else gain
    return (shape.scores**2 * 2 * gain * gain * out / (gain + out) * ratio).item()


def nearness(network: Transformer, x: Float[Tensor, "n t inputs"]) -> dict[str, float]:
    """Return the mean spread of scores of a row, and the mean distance of its weights from uniform ones."""
    spreads, distances = [], []
    layers = [layer for layer in network.modules() if isinstance(layer, Attention)]
    for layer, tokens in zip(layers, tokens_of(network, x), strict=True):
        with torch.no_grad():
            weights = layer.weights(tokens)
        seen = weights > 0
        logs = torch.where(seen, weights.log(), torch.nan)
        spreads.append((logs.nan_to_num(-math.inf).amax(-1) - logs.nan_to_num(math.inf).amin(-1)).mean())
        distances.append((weights - seen.to(weights) / seen.sum(-1, keepdim=True)).abs().sum(-1).mean())
    return {"spread": torch.stack(spreads).mean().item(), "apart": torch.stack(distances).mean().item()}


def weights_kappa(network: Transformer) -> float | None:
    """Return the median condition number of the matrices of queries, keys and values, None where some are zero."""
    found: list[float] = []
    for layer in network.modules():
        if isinstance(layer, Attention):
            each = torch.stack([part.weight.detach() for part in (layer.query, layer.key, layer.value)]).cpu()
            found += torch.linalg.cond(each + layer.shift * torch.eye(each.shape[-1]).to(each)).tolist()
    return None if any(map(math.isnan, found)) else statistics.median(found)
