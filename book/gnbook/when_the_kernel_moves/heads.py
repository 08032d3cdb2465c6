r"""Output functions :math:`\phi` after the last layer, their slopes and curvatures, and the loss of their values."""

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.when_the_kernel_moves.networks import Activation, slope


class Softmax:
    """Softmax, with the cross entropy (Liu 2020, Eqs. 44 and 46)."""

    def outputs(self, f: Float[Tensor, "*runs n k"]) -> Float[Tensor, "*runs n k"]:
        """Return probabilities."""
        return f.softmax(-1)

    def slopes(self, f: Float[Tensor, "*runs n k"]) -> Float[Tensor, "*runs n k k"]:
        r"""Return :math:`\operatorname{diag}(p) - p p^\top`, which is singular and vanishes at the corners."""
        p = self.outputs(f)
        return torch.diag_embed(p) - p[..., :, None] * p[..., None, :]

    def loss(self, f: Float[Tensor, "*runs n k"], targets: Float[Tensor, "*runs n k"]) -> Float[Tensor, "*runs"]:
        """Return the cross entropy."""
        return -(targets * f.log_softmax(-1)).sum(-1).mean(-1)

    def curvature(self, f: Float[Tensor, "*runs n k"]) -> Float[Tensor, "*runs n k k"]:
        """Return the Hessian of the cross entropy by f, which is its Gauss-Newton matrix."""
        return self.slopes(f) / f.shape[-2]


class Entrywise:
    """A function of each output, with the squared error (Liu 2020, Eqs. 45 and 47)."""

    def __init__(self, function: Activation) -> None:
        self.function = function

    def outputs(self, f: Float[Tensor, "*runs n k"]) -> Float[Tensor, "*runs n k"]:
        """Return the function of each entry."""
        return self.function(f)

    def slopes(self, f: Float[Tensor, "*runs n k"]) -> Float[Tensor, "*runs n k k"]:
        """Return diagonal matrices."""
        return torch.diag_embed(slope(self.function, f))

    def loss(self, f: Float[Tensor, "*runs n k"], targets: Float[Tensor, "*runs n k"]) -> Float[Tensor, "*runs"]:
        """Return the squared error, a sum over outputs and a mean over samples."""
        return (self.function(f) - targets).square().sum(-1).mean(-1)

    def curvature(self, f: Float[Tensor, "*runs n k"]) -> Float[Tensor, "*runs n k k"]:
        r"""Return twice the squared slopes over n: the Hessian by f without the term with :math:`\phi''`."""
        return 2 * self.slopes(f).square() / f.shape[-2]


Head = Softmax | Entrywise
"""An output function of a sample, and a loss of it that is a mean over samples."""


def swish(z: Tensor, bend: float = 0.1) -> Tensor:
    r"""Return :math:`z / (1 + e^{-\beta z})`, with :math:`\beta = 0.1` in Liu 2020, Eq. 45.

    It falls where :math:`\beta z < -1.278`: its slope is zero there, and nowhere below -0.1.
    """
    return z * torch.sigmoid(bend * z)


def output_kernel(
    kernel: Float[Tensor, "*runs nk nk"], slopes: Float[Tensor, "*runs n k k"]
) -> Float[Tensor, "*runs nk nk"]:
    r"""Return the tangent kernel :math:`\tilde K = S K S^\top` of :math:`\phi(f)` from that of f (Liu 2020, Eq. 27).

    Row `i * k + a` of K is of output a on sample i; the slopes are the blocks of S.
    """
    n, k = slopes.shape[-3:-1]
    blocks = kernel.unflatten(-2, (n, k)).unflatten(-1, (n, k))  # n, k, n, k
    left = torch.einsum("...iab,...ibjc->...iajc", slopes, blocks)
    return torch.einsum("...iajc,...jdc->...iajd", left, slopes).flatten(-2).flatten(-3, -2)
