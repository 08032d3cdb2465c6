r"""Rules for which eigenvalues of a Gauss-Newton matrix are zero, on the spectrum of one hidden layer of ReLUs.

The matrix is :math:`\frac1n J J^\top`, of size nk for n samples and k outputs; eigenvalues are in descending order.
"""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

import gnlib
from gnbook.shared.hidden_layer import leaky_relu_gram
from gnbook.shared.networks import FullyConnected
from gnlib import GaussNewton

EPSILON = {"float64": torch.finfo(torch.float64).eps, "float32": torch.finfo(torch.float32).eps}
TINY = 1e-300


def count(values: Float[Tensor, " q"], threshold: float | Float[Tensor, ""]) -> int:
    """Return how many of the eigenvalues are above a threshold."""
    return int((values > threshold).sum())


def free_directions(weights: Sequence[Tensor], x: Float[Tensor, "n d"]) -> int:
    r"""Return an upper bound of the rank, from which unit is active on which sample.

    .. math:: \operatorname{rank} G \le \min\Bigl(nk, \sum_{u :\, r_u > 0} (r_u + k - 1)\Bigr),

    where :math:`r_u` is the rank of the samples on which unit u is active.
    """
    hidden, last = weights
    active = x @ hidden.mT > 0
    ranks = [int(torch.linalg.matrix_rank(x[unit])) for unit in active.mT if unit.any()]
    return min(len(x) * len(last), sum(rank + len(last) - 1 for rank in ranks if rank))


def spectrum(weights: Sequence[Tensor], x: Float[Tensor, "n d"]) -> Float[Tensor, " q"]:
    """Return all eigenvalues of the Gram matrix in double precision."""
    return torch.linalg.eigvalsh(leaky_relu_gram(weights, x, 0.0)).flip(0)


def three_ways(weights: Sequence[Tensor], x: Float[Tensor, "n d"]) -> dict[str, Float[Tensor, " q"]]:
    """Return all eigenvalues: squared singular values of J, and those of the product in double and single precision."""
    basis = gnlib.SecondMoment.from_data(x).basis
    on_range = [weights[0] @ basis, weights[1]]  # of the data
    reduced = FullyConnected(on_range, relu=True, dtype=torch.float64)
    jacobian = torch.cat(list(GaussNewton(reduced.to(x.device), x @ basis).jacobian()), 1) / len(x) ** 0.5
    single = jacobian.float()
    squares = torch.linalg.svdvals(torch.linalg.qr(jacobian.mT, mode="r").R) ** 2
    missing = len(jacobian) - len(squares)  # J has fewer columns than rows
    return {
        "singular values": torch.nn.functional.pad(squares, (0, missing)),
        "float64": spectrum(weights, x),
        "float32": torch.linalg.eigvalsh(single @ single.mT).flip(0).double(),
    }


def by_rules(
    ways: Mapping[str, Float[Tensor, " q"]], samples: int, absolute: Sequence[float] = (1e-4, 1e-8)
) -> list[dict[str, str | int | float]]:
    """Return the rank by each rule on the spectra of `three_ways`, the condition number there, and the next gap.

    Absolute thresholds are tried in double precision, also on a matrix that is not divided by the number of samples.
    """
    double, single, reference = (ways[name] for name in ("float64", "float32", "singular values"))
    size = len(double)
    limit = size * EPSILON["float64"]  # for singular values, so its square for eigenvalues
    rules = {
        "singular values, relative": (reference, limit**2 * reference[0]),
        "float64, relative": (double, limit * double[0]),
        "float32, relative": (single, size * EPSILON["float32"] * single[0]),
    }
    for threshold in absolute:
        rules[f"float64, absolute {threshold:.0e}"] = (double, threshold)
        rules[f"the same, not over n, {threshold:.0e}"] = (double * samples, threshold)
    found = []
    for name, (values, threshold) in rules.items():
        rank = count(values, threshold)
        gap = (values[rank - 1] / values[rank].clamp_min(TINY)).item() if rank < size else float("inf")
        found.append({"rule": name, "rank": rank, "kappa": (values[0] / values[rank - 1]).item(), "gap": gap})
    return found
