"""The Gram matrix of networks as an operator: products with vectors, for more outputs than a matrix has room for."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.eigen.davidson import ExtremePair, extreme_eigenpair
from gnlib.jacobian.network import Network
from gnlib.jacobian.passes import jvp, vjp
from gnlib.jacobian.plan import count_rows
from gnlib.operators import SymmetricOperator


class GramOperator(SymmetricOperator):
    r"""The matrix :math:`\frac1n R^\top J J^\top R` of networks, one for each batch.

    Row `i * r + a` belongs to column a of the root of sample i. Without a root it is :math:`\frac1n J J^\top`, of size
    `nk`. A product takes a backward pass, for the gradient of the weighted outputs, and two more to get from there to
    the change of the outputs along that gradient.

    Parameters
    ----------
    networks
        the networks
    memory
        GiB for the activations of the samples that are taken together
    root
        R, block-diagonal with a block for each sample, such as a root of the second derivative of a loss
    """

    def __init__(self, networks: Sequence[Network], memory: float, root: Float[Tensor, "n k r"] | None = None) -> None:
        self._networks, self._memory, self._root = networks, memory, root

    @property
    def shape(self) -> tuple[int, int]:  # noqa: D102
        size = count_rows(self._networks) if self._root is None else len(self._root) * self._root.shape[2]
        return size, size

    @property
    def dtype(self) -> torch.dtype:  # noqa: D102
        return torch.float64

    @property
    def device(self) -> torch.device:  # noqa: D102
        return self._networks[0].x.device

    def matmul(self, v: Float[Tensor, " r *columns"]) -> Float[Tensor, " r *columns"]:  # noqa: D102
        columns = v.to(self.dtype).reshape(len(v), -1)
        return torch.stack([self._product(column) for column in columns.unbind(1)], 1).view(v.shape)

    def _product(self, v: Float[Tensor, " r"]) -> Float[Tensor, " r"]:
        if self._root is None:
            weights = v.view(-1, self._networks[0].outputs)
            return jvp(self._networks, vjp(self._networks, self._memory)(weights), self._memory).flatten()
        weights = (self._root @ v.view(len(self._root), -1, 1))[..., 0]
        change = jvp(self._networks, vjp(self._networks, self._memory)(weights), self._memory)
        return (self._root.mT @ change[..., None]).flatten()


def largest_eigenvalue(
    operator: SymmetricOperator | Tensor, *, tolerance: float = 1e-8, max_steps: int = 500
) -> ExtremePair:
    """Return the largest eigenvalue of a positive semi-definite operator, by products with few vectors at a time.

    Parameters
    ----------
    operator
        the operator, or a matrix
    tolerance
        relative error at which the iteration may stop; the error of the result is proved by its residual
    max_steps
        steps after which it gives up

    Raises
    ------
    NotConvergedError
        After `max_steps`.

    References
    ----------
    E. R. Davidson (1975), The iterative calculation of a few of the lowest eigenvalues and corresponding eigenvectors
    of large real-symmetric matrices, Journal of Computational Physics 17.

    Examples
    --------
    >>> import torch
    >>> from gnlib.operators import KroneckerSum
    >>> left, right = torch.eye(2).double()[None], torch.diag(torch.tensor([1.0, 3.0]).double())[None]
    >>> round(largest_eigenvalue(KroneckerSum(left, right, torch.eye(2).double())).value, 6)
    3.0
    """
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(operator.shape[0], min(2, operator.shape[0]), generator=generator, dtype=torch.float64)

    def errors(values: Tensor, residual: Tensor, _: Tensor) -> Tensor:
        return torch.linalg.vector_norm(residual, dim=0) / values.abs()

    return extreme_eigenpair(
        operator.matmul,
        start.to(operator.device),
        block=start.shape[1],
        largest=True,
        precondition=lambda residual: residual,
        errors=errors,
        tolerance=tolerance,
        max_steps=max_steps,
    )
