r"""The largest eigenvalues of an operator, with their vectors, by the Lanczos process: one product a step.

A Ritz pair :math:`(\theta, x)` has an eigenvalue within its residual :math:`\rho = \lVert A x - \theta x \rVert`, and
within :math:`\rho^2 / \delta` if no other eigenvalue is nearer to :math:`\theta` than :math:`\delta` (Temple, Kato).
The next Ritz value stands for the next eigenvalue.
See B. N. Parlett (1998), The symmetric eigenvalue problem, SIAM (theorem 11.7.1 and chapter 13).
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.eigen.quadrature import Lanczos
from gnlib.eigen.result import NotConvergedError
from gnlib.files import progress
from gnlib.operators import SymmetricOperator
from gnlib.plain import as_dict
from gnlib.refused import Refused

SETTLED = 3e-3  # relative residual below which a Ritz value is not on its way from one eigenvalue to a larger one


@dataclass(frozen=True, eq=False)
class Eigenpairs:
    """The largest eigenvalues, descending, with unit vectors in columns, and the number of products that they took.

    The residuals are of one more product with each vector, relative to its value. The errors are relative, too: the
    smaller of the residual and of what its square over the gap says, where no other eigenvalue is nearer than the gap;
    of eigenvalues that are nearer to each other than the residual one is found.
    """

    values: Float[Tensor, " k"]
    vectors: Float[Tensor, "p k"]
    residuals: Float[Tensor, " k"]
    errors: Float[Tensor, " k"]
    products: int
    seed: int = 0  # of the random vector that they began with

    to_dict = as_dict

    def __str__(self) -> str:
        """Return a line for each."""
        pairs = zip(self.values, self.errors, strict=True)
        lines = [f"{value:.6g}, relative error {error:.0e}" for value, error in pairs]
        return "\n".join([*lines, f"{self.products} products"])


def largest_eigenpairs(
    operator: SymmetricOperator, k: int = 1, *, tolerance: float = 1e-3, products: int = 200, seed: int = 0
) -> Eigenpairs:
    """Return the largest eigenvalues of a positive semi-definite operator, with their eigenvectors.

    An eigenvalue that is there several times is found once; those of a cluster are found one after the other. The
    process begins with a random vector, as a gradient may lie along the second eigenvector. No more products are taken
    when the relative errors are below the tolerance; after so many it raises a `NotConvergedError`. See
    :meth:`gnlib.GaussNewton.eigenpairs`.
    """
    for name, number in (("k", k), ("products", products)):
        if not isinstance(number, int) or number < 1:
            raise Refused("bad-option", f"{name} is {number!r}; a whole number of at least 1 was expected.")
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(operator.shape[0], generator=generator, dtype=torch.float64).to(operator.device)
    process = Lanczos(operator.matmul, start)
    for _ in progress(range(products), "Products", products):
        process.step()
        values, coefficients = process.ritz()
        residuals = process.jacobi.beside[-1] * np.abs(coefficients[-1])
        if process.exhausted or (len(values) > k and _are_found(values, residuals, k, tolerance)):
            break
    else:
        error = _errors(values, residuals, min(k, len(values) - 1)).max() if len(values) > 1 else np.inf
        what = f"After {products} products the relative error is {error:.1g}, above {tolerance:g}"
        raise NotConvergedError(f"{what}; allow more products, or a larger tolerance.")
    process.check_positive()
    count = min(k, int((values > 0).sum()))
    if not count:
        raise Refused("zero-matrix", "The matrix is zero: it has no largest eigenvalue. Check weights and data.")
    vectors = torch.stack([process.combined(coefficients[:, i]) for i in range(count)], 1)
    true = [
        float(torch.linalg.vector_norm(operator.matmul(x) - value * x))
        for x, value in zip(vectors.unbind(1), values[:count], strict=True)
    ]
    return Eigenpairs(
        values=torch.from_numpy(values[:count].copy()),
        vectors=vectors,
        residuals=torch.from_numpy(np.array(true) / values[:count]),
        errors=torch.from_numpy(_errors(values, np.append(true, residuals[count:]), count)),
        products=process.steps + count,
        seed=seed,
    )


def _are_found(values: Float[np.ndarray, " q"], residuals: Float[np.ndarray, " q"], k: int, tolerance: float) -> bool:
    """Whether the first Ritz values have settled: a larger eigenvalue may show late, and residuals rise once more."""
    settled = residuals[:k] <= max(SETTLED, 3 * tolerance) * values[:k]
    return bool((settled & (_errors(values, residuals, k) <= tolerance)).all())


def _errors(values: Float[np.ndarray, " q"], residuals: Float[np.ndarray, " q"], k: int) -> Float[np.ndarray, " k"]:
    """Return the relative errors of the first of all Ritz values, which descend."""
    gaps = np.abs(np.diff(values))
    below, above = np.append(gaps, values[-1]), np.insert(gaps, 0, np.inf)
    gap = np.maximum(np.minimum(below, above) - residuals, 1e-300)
    with np.errstate(over="ignore"):  # where two of them are one
        return (np.minimum(residuals, residuals**2 / gap) / np.maximum(values, 1e-300))[:k]
