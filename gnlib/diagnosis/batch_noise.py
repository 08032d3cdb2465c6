r"""The noise of mini-batches on the linear model: the second moment of the residual, and the rate that it bears.

With the residual r of n samples and :math:`K = \frac1n J J^\top`, a step on a batch of b samples is
:math:`r \leftarrow r - \eta \frac nb K P_B r`, where :math:`P_B` keeps the rows of the batch. Each step draws its batch
anew, every one equally likely. So the mean of r follows full batches, and :math:`S = \mathbb E\, r r^\top` follows

.. math:: S \leftarrow (1 - \eta K) S (1 - \eta K) + \gamma \eta^2 K \bigl(n D(S) - S\bigr) K, \qquad
    \gamma = \frac{n - b}{b (n - 1)} ,

where D keeps the blocks of single samples. The mean of the loss is :math:`\operatorname{tr} S / 2n`.

It stays bounded for every residual at rates below :math:`1 / \mu`, and for some residual it does not at any rate above.
In the eigenvectors V of K, :math:`\mu` is the largest eigenvalue of the symmetric map

.. math:: M \mapsto H \circ \bigl((1 - \gamma) X + \gamma n V^\top D(V X V^\top) V\bigr), \qquad X = H \circ M, \quad
    H_{ij} = \sqrt{\lambda_i \lambda_j / (\lambda_i + \lambda_j)} .

References
----------
M. Velikanov, D. Kuznedelev, D. Yarotsky (2023), A view of mini-batch SGD via generating functions, ICLR 11 (the map).
R. Mulayoff, T. Michaeli (2024), Exact mean square linear stability analysis for SGD, COLT 37 (the rate, by matrices of
the size of the squared number of parameters).
"""

import math
from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.eigen.davidson import extreme_eigenpair

SPACE = 16  # vectors that the search for the largest eigenvalue keeps, with their products


class BatchNoise:
    """The second moment of the residual under mini-batches, in the eigenvectors (in columns) of the Gram matrix.

    Each sample has as many rows in it as the others.
    """

    def __init__(self, values: Float[Tensor, " q"], vectors: Float[Tensor, "q q"], samples: int, batch: int) -> None:
        self.values, self._vectors, self._samples = values.clamp_min(0), vectors, samples
        self.share = share_of_one(samples, batch)

    def alone(self, moment: Float[Tensor, "q q"]) -> Float[Tensor, "q q"]:
        """Return n times the blocks of single samples of a matrix, both in the eigenvectors."""
        rows = self._vectors.view(self._samples, -1, len(self.values))
        blocks = (self._vectors @ moment).view_as(rows) @ rows.mT
        return self._samples * (self._vectors.mT @ (blocks @ rows).view_as(self._vectors))

    def after(self, moment: Float[Tensor, "q q"], rate: float) -> Float[Tensor, "q q"]:
        """Return the second moment after a step."""
        left, taken = 1 - rate * self.values, rate * self.values
        full = left[:, None] * moment * left
        if not self.share:
            return full
        return full + self.share * (taken[:, None] * (self.alone(moment) - moment) * taken)

    def losses(self, residual: Float[Tensor, " q"], rates: Iterable[float]) -> Float[Tensor, " steps"]:
        """Return the mean loss before step 1, after it, and so on."""
        start = self._vectors.mT @ residual
        moment = torch.outer(start, start)
        traces = [moment.trace()]
        for rate in rates:
            moment = self.after(moment, rate)
            traces.append(moment.trace())
        return torch.stack(traces).div_(2 * self._samples).nan_to_num_(nan=math.inf)

    def sharpness(self, tolerance: float = 1e-8, max_steps: int = 500) -> float:
        """Return two over the largest stable rate: of full batches it is the largest eigenvalue.

        The search begins at the identity, which has a part along every matrix that is positive semi-definite, as the
        one that belongs to the largest eigenvalue is.
        """
        if not self.share:
            return float(self.values[-1])
        sums = self.values[:, None] + self.values
        weights = (torch.outer(self.values, self.values) / sums.where(sums > 0, 1)).sqrt()

        def product(v: Float[Tensor, " p *columns"]) -> Float[Tensor, " p *columns"]:
            if v.ndim > 1:
                return torch.stack([product(column) for column in v.unbind(-1)], -1)
            moment = weights * v.view_as(weights)
            return (weights * ((1 - self.share) * moment + self.share * self.alone(moment))).flatten()

        found = extreme_eigenpair(
            product,
            torch.eye(len(self.values)).to(self.values).view(-1, 1),
            block=1,
            largest=True,
            precondition=lambda residual: residual,
            errors=lambda values, residual, _: torch.linalg.vector_norm(residual, dim=0) / values,
            tolerance=tolerance,
            max_steps=max_steps,
            max_blocks=SPACE,
        )
        return 2 * found.value


def share_of_one(samples: int, batch: int) -> float:
    r"""Return :math:`\gamma`, the share of single samples in the noise: 1 for batches of one, 0 for full batches."""
    return (samples - batch) / (batch * (samples - 1)) if batch < samples else 0.0


def sharpness_at_most(largest: float, largest_of_one: float, samples: int, batch: int) -> float:
    r"""Return what two over the largest stable rate is at most.

    It is :math:`(1 - \gamma) \lambda_{\max} + \gamma m`, with m the largest eigenvalue that a single sample has alone,
    of :math:`J_i J_i^\top`.

    Examples
    --------
    >>> sharpness_at_most(2.5, 4.0, samples=2, batch=1)
    4.0
    """
    share = share_of_one(samples, batch)
    return (1 - share) * largest + share * largest_of_one
