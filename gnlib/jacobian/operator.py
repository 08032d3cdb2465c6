"""The Gram matrix of a network by its products with vectors, for more outputs than a matrix has room for."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnlib.eigen.davidson import ExtremePair, extreme_eigenpair
from gnlib.jacobian.network import Network
from gnlib.jacobian.plan import MARGIN, check_memory
from gnlib.jacobian.trial import GIB
from gnlib.operators import SymmetricOperator


class GramOperator(SymmetricOperator):
    r"""The matrix :math:`\frac1n J J^\top` of a network, of size `nk`, with row `i * k + a` for output a of sample i.

    A product takes a backward pass, for the gradient of the weighted outputs, and a forward one, for how the outputs
    change along that gradient.
    """

    def __init__(self, network: Network, memory: float) -> None:
        super().__init__(len(network.x) * network.outputs, torch.float64, network.x.device)
        self._network = network
        samples = (memory * GIB - network.copied) / (MARGIN * max(network.bytes_per_sample, 1))
        self._batch = len(network.x) if network.coupled else max(int(min(samples, len(network.x))), 1)

    def matmul(self, v: Float[Tensor, " r *columns"]) -> Float[Tensor, " r *columns"]:  # noqa: D102
        columns = v.to(self.dtype).reshape(len(v), -1)
        return torch.stack([self._product(column) for column in columns.unbind(1)], 1).view(v.shape)

    @torch.inference_mode(False)
    @torch.no_grad()
    def _product(self, v: Float[Tensor, " r"]) -> Float[Tensor, " r"]:
        network = self._network
        with network.as_template():
            warnings.filterwarnings("ignore", ".*torch.jit.script")  # which forward derivatives are made with
            total = {name: torch.zeros_like(p) for name, p in network.parameters.items()}
            for f, weights in self._batches(v):
                pulled: Any = torch.func.vjp(f, network.parameters)
                for name, gradient in pulled[1](weights)[0].items():
                    total[name] += gradient
            found = [torch.func.jvp(f, (network.parameters,), (total,))[1] for f, _ in self._batches(v)]
        return torch.cat(found).flatten() / len(network.x)

    def _batches(self, v: Float[Tensor, " r"]) -> Iterator[tuple[Callable[..., Tensor], Float[Tensor, "b k"]]]:
        for x, weights in zip(
            self._network.x.split(self._batch), v.view(len(self._network.x), -1).split(self._batch), strict=True
        ):
            yield lambda parameters, x=x: self._network(parameters, x), weights


def gauss_newton_operator(
    module: nn.Module,
    x: Tensor,
    *,
    output: Callable[[Any], Tensor] | None = None,
    mode: str | None = None,
    memory: float = 4.0,
) -> GramOperator:
    r"""Return :math:`\frac1n J J^\top` as an operator, which is never formed.

    It is for networks with so many outputs, `n k`, that the matrix of :func:`gnlib.jacobian.gauss_newton_gram` does not
    fit. Its largest eigenvalue is that of the Gauss-Newton matrix (:func:`gnlib.jacobian.largest_eigenvalue`). The
    smallest one cannot be had that way: without a preconditioner an iteration takes as many steps as there are
    eigenvalues.

    Parameters
    ----------
    module, x, output, mode
        as for :func:`gnlib.jacobian.gauss_newton_gram`
    memory
        GiB for the activations of the samples that are taken together

    Raises
    ------
    TypeError, ValueError
        As :func:`gnlib.jacobian.gauss_newton_gram`.

    Examples
    --------
    >>> import torch
    >>> operator = gauss_newton_operator(torch.nn.Linear(2, 1, bias=False), torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
    >>> operator @ torch.tensor([1.0, 0.0])
    tensor([0.5000, 0.5000], dtype=torch.float64)
    >>> round(largest_eigenvalue(operator).value, 6)
    1.309017
    """
    check_memory(memory)
    return GramOperator(Network(module, x, output, mode, memory), memory)


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
