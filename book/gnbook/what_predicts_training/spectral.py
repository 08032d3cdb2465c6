"""What the tangent kernel at the start says: its spectrum, and where targets and residuals lie in it."""

import math
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import numerical_rank
from gnlib.losses import Loss, SquaredError
from gnlib.problem import with_root


class Kernel:
    r"""A tangent kernel, :math:`\frac1n J J^\top` or :math:`\frac1n J P^{-1} J^\top`, and the loss of its network."""

    def __init__(self, matrix: Float[Tensor, "nk nk"], loss: Loss, outputs: Float[Tensor, "n k"]) -> None:
        self.matrix, self.loss, self.outputs = matrix, loss, outputs

    @cached_property
    def spectrum(self) -> tuple[Float[Tensor, " nk"], Float[Tensor, "nk nk"]]:
        """The eigenvalues, ascending, and the eigenvectors in columns."""
        return torch.linalg.eigh(self.matrix)

    @cached_property
    def own(self) -> Float[Tensor, " nr"]:
        """The eigenvalues of the loss's own matrix, ascending; for the squared error those of the kernel."""
        if isinstance(self.loss, SquaredError):
            return self.spectrum[0]
        return torch.linalg.eigvalsh(with_root(self.loss.root(self.outputs), self.matrix))

    @property
    def targets(self) -> Float[Tensor, "n k"]:
        """The targets of the loss; classes are vectors with a 1."""
        fit = self.outputs if isinstance(self.loss, SquaredError) else self.outputs.softmax(1)
        return fit - self.loss.gradient(self.outputs)


def of_spectrum(ascending: Float[Tensor, " q"]) -> dict[str, float]:
    """Return numbers of a spectrum alone: both ends, their quotient, and how many eigenvalues carry it.

    The smallest eigenvalue is the smallest one that is not zero in double precision. `trace_over_largest` is the sum of
    all over the largest, `effective_rank` the exponential of the entropy of their shares. Of a zero matrix, such as
    that of cross-entropy where all probabilities are 0 and 1, all but the ends are nan.

    O. Roy, M. Vetterli (2007), The effective rank: a measure of effective dimensionality, EUSIPCO.
    """
    smallest, largest = ascending[-numerical_rank(ascending, len(ascending))].item(), ascending[-1].item()
    positive = ascending.clamp_min(0)
    return {
        "kappa": largest / smallest if smallest else math.nan,
        "largest": largest,
        "smallest": smallest,
        "trace_over_largest": (positive.sum() / largest).item(),
        "effective_rank": torch.special.entr(positive / positive.sum()).sum().exp().item(),
    }


def alignment(kernel: Float[Tensor, "nk nk"], targets: Float[Tensor, "n k"]) -> float:
    r"""Return the alignment of a kernel with the targets, :math:`y^\top K y / (\|K\|_F \|y\|^2)`, from 0 to 1.

    Targets are centred over the samples: a bias learns their mean at once. It is nan where nothing is left of them.

    N. Cristianini, J. Shawe-Taylor, A. Elisseeff, J. Kandola (2001), On kernel-target alignment, NeurIPS 14.
    """
    centred = (targets - targets.mean(0)).flatten()
    return (centred @ kernel @ centred / kernel.norm() / centred.square().sum()).item()


def weighted_residual(
    values: Float[Tensor, " r"], vectors: Float[Tensor, "r r"], residual: Float[Tensor, "n k"]
) -> float:
    r"""Return the mean over the squared residual of :math:`\lambda_{\max} / \lambda_j`, the time it takes to learn it.

    With :math:`c_j` its part along eigenvector j, :math:`\lambda_{\max} \sum_j c_j^2 / \lambda_j / \sum_j c_j^2`, over
    the eigenvalues that are not zero. It is 1 where all lies in the top eigenvector, and never above the condition
    number; nan for a residual of zero. Eigenvalues are ascending; the residual is the gradient of the loss by the
    outputs.
    """
    rank = numerical_rank(values, len(values))
    squares = (vectors.mT @ residual.flatten()).square()[-rank:]
    return (values[-1] * (squares / values[-rank:]).sum() / squares.sum()).item()
