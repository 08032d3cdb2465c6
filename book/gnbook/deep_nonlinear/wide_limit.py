r"""The tangent kernel of infinitely wide networks, from the Gram matrix of the samples alone.

A chain computes :math:`z_1 = W_1 x`, :math:`z_l = W_l \varphi(z_{l-1})`, with output :math:`z_L`. With branches of
factor :math:`\beta` hidden layers from the second on have a skip, :math:`z_l = z_{l-1} + \beta W_l \varphi(z_{l-1})`.
Entries of :math:`W_l` are independent and normal, of variance :math:`g^2` over the number of columns.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.deep_nonlinear.duals import Dual
from gnlib.checks import as_float64, as_samples


def wide_kernel(
    x: Float[Tensor, "n d"], dual: Dual, factors: Sequence[float], *, gain: float, branch: float | None = None
) -> Float[Tensor, "n n"]:
    r"""Return the tangent kernel of a network of infinite width (claim "The kernel of wide networks").

    Layer l enters with the factor :math:`c_l`: one for all in the parameterisation of the tangent kernel (:math:`W = g
    V / \sqrt{\text{columns}}`, derivatives by V), :func:`standard_factors` for derivatives by W. With k outputs the
    kernel is :math:`\Theta_L \otimes I_k`, of the same condition number. `branch` is :math:`\beta`, or None for a
    chain; :math:`\Theta_L` is n times the Gauss-Newton matrix in its Gram form.
    """
    x = as_samples(x)
    values = gain**2 / x.shape[1] * (x @ x.mT)
    kernel = factors[0] * values
    for index, factor in enumerate(factors[1:], start=2):
        both, slopes = (gain**2 * expectation for expectation in dual(values))
        added = factor * both + slopes * kernel
        if branch is None or index == len(factors):
            values, kernel = both, added
        else:
            values, kernel = values + branch**2 * both, kernel + branch**2 * added
    return kernel


def standard_factors(widths: Sequence[int], gain: float) -> list[float]:
    r"""Return the factors :math:`m_{l-1} / g^2` of :func:`wide_kernel` for derivatives by the weights themselves."""
    return [width / gain**2 for width in widths[:-1]]


def deep_relu_condition(norms: Float[Tensor, " n"]) -> float:
    r"""Return the limit of kappa of the wide leaky ReLU network with depth: that of :math:`3 D^2 + D 1 1^\top D`.

    D holds the norms of the samples, which are distinct in direction: :math:`(n + 3) / 3` if they are equal.
    """
    norms = as_float64(norms, "norms")
    values = torch.linalg.eigvalsh(3 * norms.square().diag() + torch.outer(norms, norms))
    return (values[-1] / values[0]).item()
