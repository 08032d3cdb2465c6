r"""The change of the tangent kernel, and the Hessian of one output on one sample, which makes it (Liu 2020, section 3).

The Hessian is that of the *network*, not of a loss: the second derivative of one output on one sample.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnbook.shared.lanczos import SpectrumEnds, symmetric_ends
from gnlib.checks import as_symmetric
from gnlib.jacobian.network import GIB
from gnlib.jacobian.trial import network_of
from gnlib.operators import SymmetricOperator

MEMORY = 4.0  # GiB for the vectors of the iteration


class Hessian(SymmetricOperator):
    """The Hessian of one output of a network on one sample, as an operator on flattened parameters.

    The function is differentiated once when the operator is made; a product is one backward pass through its gradient.
    Only parameters that require a gradient count, in the order in which the module registered them. The sample has a
    first axis of length 1. Of several outputs `output` selects one: `lambda y: y[:, :1]`. Of functions without a second
    derivative somewhere, such as ReLU, what the kinks do is missed.
    """

    def __init__(self, module: nn.Module, x: Tensor, *, output: Callable[..., Tensor] | None = None) -> None:
        network = network_of(module, x, output)
        if len(network.x) * network.outputs != 1:
            raise ValueError("A Hessian is that of one number: pass one sample, x[i : i + 1], and choose an output.")
        super().__init__(sum(p.numel() for p in network.parameters.values()), torch.float64, network.x.device)
        self._network, self._parameters = network, network.parameters
        with network.as_template():
            _, self._pull = torch.func.vjp(torch.func.grad(self._function), self._parameters)

    def matmul(self, v: Float[Tensor, " p *columns"]) -> Float[Tensor, " p *columns"]:
        """Return the product with a vector or with the columns of a matrix."""
        if v.ndim > 1:
            return torch.stack([self.matmul(column) for column in v.unbind(1)], 1)
        (product,) = self._pull(self._unflatten(v))
        return self._flatten(product)

    def curvature_gradient(self, v: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
        r"""Return the derivative of the curvature :math:`v^\top H v` by the parameters: where to go to see it grow."""
        tangents = self._unflatten(v)

        def along(function: Callable[[dict[str, Tensor]], Tensor]) -> Callable[[dict[str, Tensor]], Tensor]:
            def derivative(parameters: dict[str, Tensor]) -> Tensor:
                gradient = torch.func.grad(function)(parameters)
                return torch.stack([(gradient[name] * tangents[name]).sum() for name in tangents]).sum()

            return derivative

        with self._network.as_template():
            return self._flatten(torch.func.grad(along(along(self._function)))(self._parameters))

    def _function(self, parameters: dict[str, Tensor]) -> Float[Tensor, ""]:
        return self._network(parameters, self._network.x)[0, 0]

    def _flatten(self, tensors: dict[str, Tensor]) -> Float[Tensor, " p"]:
        return torch.cat([tensors[name].flatten() for name in self._parameters])

    def _unflatten(self, v: Float[Tensor, " p"]) -> dict[str, Tensor]:
        pieces = v.split([p.numel() for p in self._parameters.values()])
        return {name: w.view_as(p) for (name, p), w in zip(self._parameters.items(), pieces, strict=True)}


def hessian_ends(
    module: nn.Module, x: Tensor, *, output: Callable[..., Tensor] | None = None, tolerance: float = 1e-6
) -> SpectrumEnds:
    """Return the extreme eigenvalues of the Hessian of one output of a network on one sample, by Lanczos.

    The iteration ends at residuals of the tolerance, relative to the norm of the Hessian; the error of an eigenvalue
    that is not in a cluster is of the order of its square. Its vectors fill `MEMORY` at most.
    """
    hessian = Hessian(module, x, output=output)
    p = hessian.shape[0]
    start = torch.randn(p, generator=torch.Generator().manual_seed(0), dtype=torch.float64, device="cpu")
    most = min(500, int(MEMORY * GIB // (8 * p)))
    return symmetric_ends(hessian.matmul, start.to(hessian.device), tolerance=tolerance, max_steps=most)


@contextmanager
def moved(module: nn.Module, direction: Float[Tensor, " p"]) -> Iterator[nn.Module]:
    """Add a vector to the flattened parameters that require a gradient, and take it off again at the end."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    kept = nn.utils.parameters_to_vector(parameters).detach().clone()
    nn.utils.vector_to_parameters(kept + direction.to(kept.dtype), parameters)
    try:
        yield module
    finally:
        nn.utils.vector_to_parameters(kept, parameters)


def kernel_change(before: Float[Tensor, "nk nk"], after: Float[Tensor, "nk nk"]) -> float:
    r"""Return the relative change :math:`\|K - K_0\|_F / \|K_0\|_F` of a tangent kernel (Liu 2020, section 6)."""
    before, after = as_symmetric(before, "before"), as_symmetric(after, "after")
    size = torch.linalg.matrix_norm(before)
    return (torch.linalg.matrix_norm(after - before) / size).item()
