r"""How the eigenvalues of an operator are spread, and their sum, from products with random vectors.

For a vector z of independent signs, :math:`z^\top f(A) z` has the mean :math:`\operatorname{tr} f(A)`. A few steps of
the Lanczos process from z give it as the Gauss rule of the eigenvalues, with the weight :math:`(z^\top v_i)^2` at each:
the **squared first entries** of the eigenvectors of the tridiagonal matrix, which add up to the size of A. Of how many
eigenvalues are below a value x it is a guess; the rule with one more node, at x, has bounds: no measure with the same
moments has less below x than the weights of the nodes below it, and none has more up to x than these and that of x.

References
----------
S. Ubaru, J. Chen, Y. Saad (2017), Fast estimation of tr(f(A)) via stochastic Lanczos quadrature, SIAM Journal on Matrix
Analysis and Applications 38.
G. H. Golub, G. Meurant (2010), Matrices, moments and quadrature with applications, Princeton (the bounds).
R. A. Meyer, C. Musco, C. Musco, D. P. Woodruff (2021), Hutch++: optimal stochastic trace estimation, SOSA.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy
import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.eigen.quadrature import Jacobi, Lanczos
from gnlib.files import progress
from gnlib.operators import SymmetricOperator
from gnlib.plain import as_dict
from gnlib.refused import Refused

SURE = 0.99865  # that a bound of random vectors holds on one side: three standard errors, if these were known
ZERO = 1e-9  # of the largest eigenvalue, below which one is not told from zero in double precision


class Estimate(NamedTuple):
    """A mean over random vectors, its standard error, and their seed, if there was one for this alone."""

    value: float
    error: float
    seed: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes by their names."""
        return as_dict(self)

    def __str__(self) -> str:
        """Return both."""
        return f"{self.value:.4g} +- {self.error:.1g}"


class Interval(NamedTuple):
    """A number between two others."""

    low: float
    high: float

    def __str__(self) -> str:
        """Return both."""
        return f"{self.low:.0f} to {self.high:.0f}"


@dataclass(frozen=True, eq=False)
class SpectralDensity:
    """How the eigenvalues are spread: what is known of a measure from each of several random vectors.

    Each measure is that of the squared entries of a vector in the eigenvectors, at their eigenvalues: together the size
    of the matrix. Below `zero` eigenvalues are not told from it.
    """

    measures: tuple[Jacobi, ...]
    size: int
    zero: float
    products: int
    seed: int = 0

    to_dict = as_dict

    def below(self, value: float) -> Interval:
        """Bound how many eigenvalues are below a value, or equal to it.

        The errors of the means over the vectors are added on both sides, by Student's distribution with a certainty of
        99.7 %: few vectors give wide bounds.
        """
        low, high = (_mean(ends) for ends in zip(*(measure.below(value) for measure in self.measures), strict=True))
        errors, size = float(scipy.special.stdtrit(len(self.measures) - 1, SURE)), float(self.size)
        return Interval(max(low.value - errors * low.error, 0.0), min(high.value + errors * high.error, size))

    @property
    def zeros(self) -> Interval:
        """How many eigenvalues are not told from zero."""
        return self.below(self.zero)

    @property
    def largest(self) -> float:
        """The largest eigenvalue that was found."""
        return max(float(measure.gauss().nodes.max()) for measure in self.measures)

    @property
    def smallest(self) -> float:
        """The smallest value at which a rule has a node that is not zero."""
        nodes = np.concatenate([measure.gauss().nodes for measure in self.measures])
        return float(nodes[nodes > self.zero].min())

    @property
    def trace(self) -> Estimate:
        """The sum of the eigenvalues."""
        return self._moment(1)

    @property
    def effective_rank(self) -> float:
        """The squared sum of the eigenvalues over the sum of their squares: how many there are, if they were equal."""
        return self._moment(1).value ** 2 / self._moment(2).value

    def _moment(self, power: int) -> Estimate:
        rules = (measure.gauss() for measure in self.measures)
        return _mean([float(weights @ nodes**power) for nodes, weights in rules])

    def __str__(self) -> str:
        """Return one line for the zeros, and some for what is below other values."""
        lines = [f"{self.size} eigenvalues, {self.zeros} of them zero; {self.products} products"]
        for value in np.geomspace(self.smallest, self.largest, 6)[:-1]:
            lines.append(f"below {value:.2e}: {self.below(float(value))}")
        return "\n".join([*lines, f"largest {self.largest:.4g}, effective rank {self.effective_rank:.3g}"])


def spectral_density(
    operator: SymmetricOperator, *, vectors: int = 5, steps: int = 30, zero: float = ZERO, seed: int = 0
) -> SpectralDensity:
    """Estimate how the eigenvalues of a positive semi-definite operator are spread, by products with random vectors.

    There are so many steps with each of at least two vectors. An eigenvalue counts as zero below a share of the
    largest. See :meth:`gnlib.GaussNewton.spectral_density`.
    """
    if vectors < 2 or steps < 1:
        what = f"vectors is {vectors} and steps {steps}; at least 2 vectors and 1 step were expected."
        raise Refused("bad-option", what)
    generator, measures = torch.Generator().manual_seed(seed), []
    for _ in progress(range(vectors), "Vectors", vectors):
        process = Lanczos(operator.matmul, _signs(operator, generator))
        for _ in range(steps):
            process.step()
        process.check_positive()
        measures.append(process.jacobi)
    products = sum(len(measure.diagonal) for measure in measures)
    largest = max(float(measure.gauss().nodes.max()) for measure in measures)
    if largest <= 0:
        raise Refused("zero-matrix", "The matrix is zero: it has no spectrum. Check the weights and the data.")
    return SpectralDensity(tuple(measures), operator.shape[0], zero * largest, products, seed)


def trace(operator: SymmetricOperator, *, products: int = 60, seed: int = 0) -> Estimate:
    r"""Estimate the trace of a positive semi-definite operator by Hutch++, with its standard error.

    A third of the products finds a basis Q of what is large, a third has its trace exactly, and the rest is estimated
    from random vectors outside of it, :math:`\operatorname{tr} Q^\top A Q + \operatorname{tr} (I - Q Q^\top) A (I - Q
    Q^\top)`.

    It takes at least six products. See :meth:`gnlib.GaussNewton.trace`.
    """
    if products < 6:
        raise Refused("bad-option", f"products is {products}; at least 6 were expected.")
    generator, third, size = torch.Generator().manual_seed(seed), products // 3, operator.shape[0]
    if size <= third:
        return Estimate(float(operator.dense().trace()), 0.0, seed)
    sketch = torch.stack([operator.matmul(_signs(operator, generator)) for _ in range(third)], 1)
    basis, _ = torch.linalg.qr(sketch)
    known = sum(float(q @ operator.matmul(q)) for q in basis.unbind(1))
    rest = []
    for _ in range(third):
        z = _signs(operator, generator)
        z = z - basis @ (basis.mT @ z)
        rest.append(float(z @ operator.matmul(z)))
    value, error, _ = _mean(rest)
    return Estimate(known + value, error, seed)


def _signs(operator: SymmetricOperator, generator: torch.Generator) -> Float[Tensor, " p"]:
    signs = torch.randint(0, 2, (operator.shape[0],), generator=generator, dtype=torch.float64)
    return (2 * signs - 1).to(operator.device)


def _mean(values: Sequence[float]) -> Estimate:
    return Estimate(float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(len(values))))
