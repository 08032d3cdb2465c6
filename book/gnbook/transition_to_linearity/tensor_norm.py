"""The (2,2,1)-norm of tensors of order three (Liu 2020, section 2.1)."""

from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.shared.extremes import Interval
from gnlib.checks import as_float64

FEW = 12  # slices of a tensor whose signs are tried one by one
TRIES = 20  # starts of the search for a lower bound


def norm_221(tensor: Float[Tensor, "d1 d2 d3"]) -> Interval:
    r"""Return bounds on the (2,2,1)-norm of a tensor of order three (Liu 2020, Definition 2.2).

    It is the largest spectral norm of the :math:`2^{d_3}` signed sums :math:`\sum_k \pm T_{\cdot\cdot k}`. Up to 12
    slices all are tried, and the bounds coincide. For more, the lower bound is the best that an alternating search
    finds, and the upper one, with the absolute value :math:`|A| = (A^\top A)^{1/2}` of a matrix, is
    :math:`\lambda_{\max}(\sum_k |T_k|)^{1/2}\, \lambda_{\max}(\sum_k |T_k^\top|)^{1/2}`; for semi-definite slices,
    whatever their signs, they coincide too.
    """
    tensor = as_float64(tensor, "tensor")
    slices = tensor.movedim(2, 0)
    if len(slices) <= FEW:
        signs = tensor.new_tensor([(1.0, *rest) for rest in product((1.0, -1.0), repeat=len(slices) - 1)])
        sums = torch.einsum("sk,kij->sij", signs, slices)
        exact = torch.linalg.matrix_norm(sums, 2).max().item()
        return Interval(exact, exact)
    u, s, vh = torch.linalg.svd(slices, full_matrices=False)
    left, right = torch.einsum("kir,kr,kjr->ij", u, s, u), torch.einsum("kri,kr,krj->ij", vh, s, vh)
    upper = (torch.linalg.eigvalsh(left)[-1] * torch.linalg.eigvalsh(right)[-1]).clamp_min(0).sqrt().item()
    generator = torch.Generator().manual_seed(0)
    starts = torch.randn(TRIES, len(slices), generator=generator, dtype=torch.float64, device=generator.device)
    starts = starts.sign().to(tensor.device)
    trace = slices.diagonal(dim1=1, dim2=2).sum(1).sign()  # right at once where the slices are semi-definite
    lower = max(_ascend(slices, signs) for signs in [trace, *starts])
    return Interval(min(lower, upper), upper)


def _ascend(slices: Float[Tensor, "d3 d1 d2"], signs: Float[Tensor, " d3"]) -> float:
    """Improve signs until the sum of the slices with these signs is of a norm that no longer grows."""
    best = -1.0
    while True:
        u, s, vh = torch.linalg.svd(torch.einsum("k,kij->ij", signs, slices))
        if s[0] <= best * (1 + 1e-12):
            return max(best, 0.0)
        best = s[0].item()
        signs = torch.einsum("i,kij,j->k", u[:, 0], slices, vh[0]).sign()
