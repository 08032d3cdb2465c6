"""The Gauss-Newton matrix of a network on several batches, by all parameters and by those that pruning kept."""

import copy
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gnbook.pruning.masks import apply_masks
from gnlib import GaussNewton
from gnlib.checks import EPS

Masks = Mapping[str, Bool[Tensor, "*shape"]]
Grams = dict[str, Float[Tensor, "nk nk"]]

COLUMNS = 4096  # of the Jacobian taken to double precision at a time
PUBLIC = 1e-7
"""What the public code behind Zhao 2024 takes for zero among the eigenvalues of J J^T, in single precision."""


class Ends(NamedTuple):
    """Both ends of a spectrum without its zeros, their ratio, and an estimate of its relative error."""

    largest: float
    smallest: float
    rank: int
    kappa: float
    error: float


def with_statistics_of_batches(
    network: nn.Module, masks: Masks, batches: Sequence[Tensor], dtype: torch.dtype = torch.float32
) -> Grams:
    r"""Return :math:`\frac1n J J^\top` of a network in training mode, by all columns and by the kept ones, in float64.

    An output depends on all samples of its batch, so each takes a backward pass through all of it. In single precision
    that takes half as long, which is why this is not :meth:`gnlib.GaussNewton.gram`.
    """
    network = copy.deepcopy(network).to(dtype).train()
    parameters = dict(network.named_parameters())
    kept = [masks.get(name, torch.ones_like(p, dtype=torch.bool)).flatten() for name, p in parameters.items()]
    outputs = [output for batch in batches for output in network(batch.to(dtype)).flatten()]
    jacobian = torch.empty(len(outputs), sum(map(len, kept)), dtype=dtype, device=kept[0].device)
    for row, output in zip(jacobian, outputs, strict=True):
        gradients = torch.autograd.grad(output, [*parameters.values()], retain_graph=True)
        torch.cat([gradient.flatten() for gradient in gradients], out=row)
    by_kept, by_pruned = jacobian.new_zeros(2, len(outputs), len(outputs), dtype=torch.float64)
    for columns, mask in zip(jacobian.split(COLUMNS, 1), torch.cat(kept).split(COLUMNS), strict=True):
        for gram, wanted in ((by_kept, mask), (by_pruned, ~mask)):
            some = columns[:, wanted].double()
            gram.addmm_(some, some.mT)
    n = sum(map(len, batches))
    return {"all": (by_kept + by_pruned) / n, "kept": by_kept / n}


def with_running_statistics(network: nn.Module, masks: Masks, batches: Sequence[Tensor]) -> Grams:
    """Return the same matrices of a network in evaluation mode, or without BatchNorm, in double precision."""
    masked, x = copy.deepcopy(network), torch.cat(list(batches))
    apply_masks(masked, masks)
    kinds = {"all": network, "kept": masked}
    return {columns: GaussNewton(kind, x, mode="eval").gram() for columns, kind in kinds.items()}


def ends(gram: Float[Tensor, "nk nk"], dtype: torch.dtype = torch.float64) -> Ends:
    """Return both ends of the spectrum of a Gram matrix whose Jacobian was computed in this precision.

    A relative error of eps in the Jacobian changes its singular values, the roots of the eigenvalues, by eps times the
    largest, and the matrix itself is rounded to double precision. So eigenvalues up to nk times `eps**2`, or times the
    epsilon of double precision, of the largest count as zero.
    """
    values = torch.linalg.eigvalsh(gram)
    eps = torch.finfo(dtype).eps
    above = values[values > len(gram) * max(eps**2, EPS) * values[-1]]
    largest, smallest = above[-1].item(), above[0].item()
    kappa = largest / smallest
    return Ends(largest, smallest, len(above), kappa, 2 * eps * math.sqrt(kappa) + EPS * kappa)


def by_the_public_rule(gram: Float[Tensor, "nk nk"]) -> tuple[float, int]:
    r"""Return condition number and rank of :math:`J J^\top`, not divided by n, as the public code has them.

    Matrix and eigenvalues are in single precision, and what is larger than 1e-7 counts, whatever the largest is: the
    smallest that counts is rounding where the condition number is beyond about 1e7.

    J. Zhao, S. P. Singh, A. Lucchi (2024), NeurIPS 37, figure 1; the rule is that of its public code.
    """
    values = torch.linalg.eigvalsh(gram.float())
    above = values[values > PUBLIC]
    return (above[-1] / above[0]).item(), len(above)
