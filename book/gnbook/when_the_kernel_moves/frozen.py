r"""Networks with the tangent kernel of the start throughout: their linear models, on the samples of training."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.when_the_kernel_moves.networks import Passes, StackedNetworks


class FrozenKernels(StackedNetworks):
    r"""Linear models, one for each run, that know their outputs on the samples and no weights.

    A step of gradient descent takes the outputs to :math:`f - \eta K \nabla_f \ell`, with the kernel K of the start.
    Row `i * k + a` of a kernel is of output a on sample i.
    """

    def __init__(self, outputs: Float[Tensor, "runs n k"], kernels: Float[Tensor, "runs nk nk"]) -> None:
        super().__init__([outputs], [1.0], [])
        self.kernels = kernels

    def passes(self, x: Float[Tensor, "*runs n d"]) -> Passes:
        """Return the outputs; the samples are those of the start, whatever is given."""
        return Passes([x], [self.weights[0].detach().clone()])

    @torch.no_grad()
    def step(self, passes: Passes, slopes: Float[Tensor, "runs n k"], rates: Float[Tensor, " runs"]) -> None:
        """Take a step of gradient descent, in place, as networks with weights do."""
        self.weights[0].sub_(rates[:, None, None] * (self.kernels @ slopes.flatten(1)[..., None]).view_as(slopes))

    def kernel(self, x: Float[Tensor, "*runs n d"]) -> Float[Tensor, "runs nk nk"]:
        """Return the kernels of the start."""
        return self.kernels

    def only(self, runs: Sequence[int]) -> "FrozenKernels":
        """Return copies of some of the models."""
        return FrozenKernels(self.weights[0].detach()[list(runs)], self.kernels[list(runs)])
