"""The Gauss-Newton matrix of a network on several batches, by all parameters and by those that pruning kept."""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gnlib.checks import EPS
from gnlib.modules import jacobian_blocks

COLUMNS = 4096  # of the Jacobian taken to double precision at a time
PUBLIC = 1e-7
"""What the public code behind Zhao 2024 takes for zero among the eigenvalues of J J^T, in single precision."""


class Ends(NamedTuple):
    """Both ends of a spectrum.

    Attributes
    ----------
    largest, smallest
        the largest and the smallest non-zero eigenvalue
    rank
        number of non-zero eigenvalues
    kappa
        their ratio, the pseudo-condition number
    error
        estimate of its relative error, from the precisions of the Jacobian and of the matrix
    """

    largest: float
    smallest: float
    rank: int
    kappa: float
    error: float


def with_statistics_of_batches(
    network: nn.Module, batches: Sequence[Tensor], dtype: torch.dtype = torch.float32
) -> Iterator[Float[Tensor, "nk p"]]:
    """Return the Jacobian of a network in training mode, a block of columns for each parameter, the last one first.

    BatchNorm takes its statistics from each batch, so that an output depends on all samples of its batch: each takes a
    backward pass through the whole batch. The network is left as it is.

    Parameters
    ----------
    network
        a module
    batches
        samples, batch by batch
    dtype
        precision of the passes

    Examples
    --------
    >>> import torch
    >>> network = torch.nn.BatchNorm1d(1)
    >>> shift, scale = with_statistics_of_batches(network, [torch.tensor([[1.0], [3.0]])])
    >>> scale.round(decimals=3)
    tensor([[-1.],
            [ 1.]])
    """
    network = copy.deepcopy(network).to(dtype).train()
    parameters = list(network.parameters())[::-1]
    rows: Float[Tensor, "nk p"] | None = None
    row = 0
    for batch in batches:
        outputs = network(batch.to(dtype)).flatten()
        if rows is None:
            p = sum(parameter.numel() for parameter in parameters)
            rows = torch.empty(len(outputs) // len(batch) * sum(map(len, batches)), p, dtype=dtype, device=batch.device)
        for output in outputs:
            gradients = torch.autograd.grad(output, parameters, retain_graph=True)
            torch.cat([gradient.flatten() for gradient in gradients], out=rows[row])
            row += 1
    yield from rows.split([parameter.numel() for parameter in parameters], dim=1)


def with_running_statistics(network: nn.Module, batches: Sequence[Tensor]) -> Iterator[Float[Tensor, "nk g"]]:
    """Return the Jacobian of a network in evaluation mode, in double precision, blocks of columns in the same order."""
    return jacobian_blocks(network, torch.cat(list(batches)), mode="eval")


def grams(
    blocks: Iterator[Float[Tensor, "nk g"]], kept: Bool[Tensor, " p"], outputs: int = 10
) -> dict[str, Float[Tensor, "nk nk"]]:
    r"""Return Gram matrices of a Jacobian whose columns come in blocks.

    Returns
    -------
    By name: "all", :math:`\frac1n J J^\top`; "kept", that of the kept columns alone; both in double precision; and
    "public", :math:`J J^\top`, not divided by n, in single precision, as the public code has it.

    Examples
    --------
    >>> import torch
    >>> jacobian = torch.tensor([[1.0, 2.0], [0.0, 3.0]])
    >>> grams(iter([jacobian]), torch.tensor([True, False]), outputs=1)["kept"]
    tensor([[0.5000, 0.0000],
            [0.0000, 0.0000]], dtype=torch.float64)
    """
    found: dict[str, Tensor] = {}
    start = 0
    for block in blocks:
        rows, width = block.shape
        if not found:
            found = {name: block.new_zeros(rows, rows, dtype=torch.float64) for name in ("kept", "pruned")}
            found["public"] = block.new_zeros(rows, rows, dtype=torch.float32)
        some = kept[start : start + width]
        start += width
        for part, mask in zip(block.split(COLUMNS, dim=1), some.split(COLUMNS), strict=True):
            for name, columns in (("kept", mask), ("pruned", ~mask)):
                if columns.any():
                    wanted = part[:, columns].double()
                    found[name].addmm_(wanted, wanted.mT)
            single = part.float()
            found["public"].addmm_(single, single.mT)
        del block
    n = len(found["kept"]) / outputs
    return {
        "all": (found["kept"] + found["pruned"]) / n,
        "kept": found["kept"] / n,
        "public": found["public"],
    }


def ends(gram: Float[Tensor, "nk nk"], dtype: torch.dtype = torch.float64) -> Ends:
    """Return both ends of the spectrum of a Gram matrix whose Jacobian was computed in this precision.

    A relative error of eps in the Jacobian changes its singular values, the roots of the eigenvalues, by eps times the
    largest, and the matrix itself is rounded to double precision. So eigenvalues up to nk times `eps**2`, or times the
    epsilon of double precision, of the largest count as zero.

    Examples
    --------
    >>> import torch
    >>> ends(torch.diag(torch.tensor([4.0, 2.0, 0.0]).double()))[:4]
    (4.0, 2.0, 2, 2.0)
    """
    values = torch.linalg.eigvalsh(gram)
    eps = torch.finfo(dtype).eps
    above = values[values > len(gram) * max(eps**2, EPS) * values[-1]]
    largest, smallest = above[-1].item(), above[0].item()
    kappa = largest / smallest
    return Ends(largest, smallest, len(above), kappa, 2 * eps * math.sqrt(kappa) + EPS * kappa)


def by_the_public_rule(gram: Float[Tensor, "nk nk"]) -> tuple[float, int]:
    """Return condition number and rank as the public code has them: of a matrix in single precision.

    What counts is larger than 1e-7, whatever the largest is, so nearly all eigenvalues do; the smallest of them is
    rounding where the condition number is beyond about 1e7.

    References
    ----------
    J. Zhao, S. P. Singh, A. Lucchi (2024), NeurIPS 37, figure 1; the rule is that of its public code.

    Examples
    --------
    >>> import torch
    >>> by_the_public_rule(torch.diag(torch.tensor([4.0, 2.0, 1e-8])))
    (2.0, 2)
    """
    values = torch.linalg.eigvalsh(gram)
    above = values[values > PUBLIC]
    return (above[-1] / above[0]).item(), len(above)


def kept_columns(network: nn.Module, masks: Mapping[str, Bool[Tensor, "*shape"]]) -> Bool[Tensor, " p"]:
    """Return which columns of the Jacobian, in the order of its blocks, belong to what masks keep, or have no mask.

    Examples
    --------
    >>> import torch
    >>> kept_columns(torch.nn.Linear(2, 1), {"weight": torch.tensor([[True, False]])})
    tensor([ True,  True, False])
    """
    named = list(network.named_parameters())[::-1]
    return torch.cat([masks.get(name, torch.ones_like(p, dtype=torch.bool)).flatten() for name, p in named])
