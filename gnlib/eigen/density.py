r"""How the eigenvalues of an operator are spread, and their sum, from products with random vectors.

For a vector z of independent signs, :math:`z^\top f(A) z` has the mean :math:`\operatorname{tr} f(A)`. A few steps of
the Lanczos process from z give it as the Gauss rule of the eigenvalues, with the weight :math:`(z^\top v_i)^2` at each:
the **squared first entries** of the eigenvectors of the tridiagonal matrix, which add up to the size of A. With one
node prescribed at zero (Radau) the weight there is the most that the zeros can have, and no small node stands for them.

References
----------
S. Ubaru, J. Chen, Y. Saad (2017), Fast estimation of tr(f(A)) via stochastic Lanczos quadrature, SIAM Journal on Matrix
Analysis and Applications 38.
R. A. Meyer, C. Musco, C. Musco, D. P. Woodruff (2021), Hutch++: optimal stochastic trace estimation, SOSA.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.eigen.quadrature import Lanczos, Rule
from gnlib.files import progress
from gnlib.operators import SymmetricOperator

ROUNDING = 1e-12  # of the largest entry, below zero, by which rounding moves an eigenvalue that is zero
ZERO = 1e-9  # of the largest eigenvalue, below which one is not told from zero in double precision


class Estimate(NamedTuple):
    """A mean over random vectors, and its standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        """Return both."""
        return f"{self.value:.4g} +- {self.error:.1g}"


@dataclass(frozen=True, eq=False)
class SpectralDensity:
    """How the eigenvalues are spread: a rule of nodes and weights from each of several random vectors.

    Attributes
    ----------
    rules
        nodes, and weights that add up to the size of the matrix
    size
        of the matrix, zeros included
    zero
        below it eigenvalues are not told from zero
    products
        that it took
    """

    rules: tuple[Rule, ...]
    size: int
    zero: float
    products: int

    def number(self, low: float = -math.inf, high: float = math.inf) -> Estimate:
        """Estimate how many eigenvalues lie from `low` up to but without `high`."""
        return _mean([float(w[(low <= nodes) & (nodes < high)].sum()) for nodes, w in self.rules])

    @property
    def zeros(self) -> Estimate:
        """How many eigenvalues are zero, at most: so many products do not tell them from the smallest others."""
        return self.number(high=self.zero)

    @property
    def trace(self) -> Estimate:
        """The sum of the eigenvalues."""
        return _mean([float(weights @ nodes) for nodes, weights in self.rules])

    @property
    def effective_rank(self) -> float:
        """The squared sum of the eigenvalues over the sum of their squares: how many there are, if they were equal."""
        squares = _mean([float(weights @ nodes**2) for nodes, weights in self.rules])
        return self.trace.value**2 / squares.value

    def histogram(self, bins: int = 20) -> tuple[Float[np.ndarray, " edges"], Float[np.ndarray, "bins 2"]]:
        """Return edges, equal in the logarithm, and how many eigenvalues lie between them, each with its error.

        Zeros are not among them.
        """
        nodes = np.concatenate([rule.nodes for rule in self.rules])
        positive = nodes[nodes >= self.zero]
        edges = np.geomspace(positive.min(), positive.max() * (1 + 1e-9), bins + 1)
        return edges, np.array([self.number(*ends) for ends in pairwise(edges)])

    def __str__(self) -> str:
        """Return one line for the zeros, and one for each ten of the others."""
        edges, numbers = self.histogram(10)
        lines = [f"{self.size} eigenvalues, at most {self.zeros} of them zero; {self.products} products"]
        for low, high, (number, error) in zip(edges[:-1], edges[1:], numbers, strict=True):
            lines.append(f"{low:9.2e} to {high:8.2e}  {Estimate(number, error)}")
        return "\n".join(lines)


def spectral_density(
    operator: SymmetricOperator, *, vectors: int = 5, steps: int = 30, zero: float = ZERO, seed: int = 0
) -> SpectralDensity:
    """Estimate how the eigenvalues of a positive semi-definite operator are spread.

    Parameters
    ----------
    operator
        known by its products with vectors
    vectors
        random ones, at least two, from which the errors are told
    steps
        products with each
    zero
        share of the largest eigenvalue below which one counts as zero
    seed
        of the vectors

    Examples
    --------
    >>> import torch
    >>> from gnlib.operators import KroneckerSum
    >>> left, right = torch.eye(1).double()[None], torch.diag(torch.tensor([0.0] * 50 + [1.0] * 50).double())[None]
    >>> density = spectral_density(KroneckerSum(left, right, torch.eye(100).double()))
    >>> print(density.zeros, "and", density.number(0.9, 1.1))
    50 +- 0 and 50 +- 0
    """
    if vectors < 2 or steps < 1:
        raise ValueError(f"vectors is {vectors} and steps {steps}; at least 2 vectors and 1 step were expected.")
    generator, rules, products = torch.Generator().manual_seed(seed), [], 0
    for _ in progress(range(vectors), "Vectors", vectors):
        process = Lanczos(operator.matmul, _signs(operator, generator))
        while process.steps < steps and not process.exhausted:
            process.step()
        jacobi = process.jacobi
        low = -ROUNDING * float(np.abs(jacobi.diagonal).max())
        rules.append(jacobi.gauss() if process.exhausted else jacobi.radau(low))
        products += process.steps
    largest = max(float(rule.nodes.max()) for rule in rules)
    if largest <= 0:
        raise ValueError("The matrix is zero: it has no spectrum. Check the weights and the data.")
    return SpectralDensity(tuple(rules), operator.shape[0], zero * largest, products)


def trace(operator: SymmetricOperator, *, products: int = 60, seed: int = 0) -> Estimate:
    r"""Estimate the trace of a positive semi-definite operator by Hutch++, with its standard error.

    A third of the products finds a basis Q of what is large, a third has its trace exactly, and the rest is estimated
    from random vectors outside of it, :math:`\operatorname{tr} Q^\top A Q + \operatorname{tr} (I - Q Q^\top) A (I - Q
    Q^\top)`.

    Parameters
    ----------
    operator
        known by its products with vectors
    products
        with vectors, at least 6
    seed
        of the random vectors

    Examples
    --------
    >>> import torch
    >>> from gnlib.operators import KroneckerSum
    >>> left, right = torch.eye(1).double()[None], torch.diag(torch.arange(40.0).double() ** 4)[None]
    >>> found = trace(KroneckerSum(left, right, torch.eye(40).double()))
    >>> abs(found.value - float((torch.arange(40.0) ** 4).sum())) < 3 * found.error
    True
    """
    if products < 6:
        raise ValueError(f"products is {products}; at least 6 were expected.")
    generator, third, size = torch.Generator().manual_seed(seed), products // 3, operator.shape[0]
    if size <= third:
        return Estimate(float(operator.dense().trace()), 0.0)
    sketch = torch.stack([operator.matmul(_signs(operator, generator)) for _ in range(third)], 1)
    basis, _ = torch.linalg.qr(sketch)
    known = sum(float(q @ operator.matmul(q)) for q in basis.unbind(1))
    rest = []
    for _ in range(third):
        z = _signs(operator, generator)
        z = z - basis @ (basis.mT @ z)
        rest.append(float(z @ operator.matmul(z)))
    mean = _mean(rest)
    return Estimate(known + mean.value, mean.error)


def _signs(operator: SymmetricOperator, generator: torch.Generator) -> Float[Tensor, " p"]:
    signs = torch.randint(0, 2, (operator.shape[0],), generator=generator, dtype=torch.float64)
    return (2 * signs - 1).to(operator.device)


def _mean(values: Sequence[float]) -> Estimate:
    return Estimate(float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(len(values))))
