r"""The tangent kernel of infinitely wide networks, from the Gram matrix of the samples alone.

A chain computes :math:`z_1 = W_1 x`, :math:`z_l = W_l \varphi(z_{l-1})`, with output :math:`z_L`. With branches of
factor :math:`\beta` hidden layers from the second on have a skip, :math:`z_l = z_{l-1} + \beta W_l \varphi(z_{l-1})`.
Entries of :math:`W_l` are independent and normal, of variance :math:`g^2` over the number of columns.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.deep_nonlinear.duals import Dual
from gnlib.checks import as_float64, as_samples


def wide_kernel(
    x: Float[Tensor, "n d"], dual: Dual, factors: Sequence[float], *, gain: float, branch: float | None = None
) -> Float[Tensor, "n n"]:
    r"""Return the tangent kernel of a network with hidden layers of infinite width.

    With :math:`Q_1 = \Theta_1 / c_1 = \frac{g^2}d x x^\top` and, by the dual of the activation at :math:`Q_l`,
    :math:`C = g^2 E \varphi \varphi` and :math:`D = g^2 E \varphi' \varphi'`,

    .. math::
        Q_{l+1} = C, \quad \Theta_{l+1} = c_{l+1} C + D \circ \Theta_l,
        \qquad \text{with a skip} \qquad
        Q_{l+1} = Q_l + \beta^2 C, \quad \Theta_{l+1} = \Theta_l + \beta^2 (c_{l+1} C + D \circ \Theta_l) .

    Layer l enters with the factor :math:`c_l`: one for all in the parameterisation of the tangent kernel
    (:math:`W = g V / \sqrt{\text{columns}}`, derivatives by V), :func:`standard_factors` for derivatives by W. With k
    outputs the kernel is :math:`\Theta_L \otimes I_k`, of the same condition number.

    Parameters
    ----------
    x
        samples in rows, none of them zero
    dual
        of the activation, from :mod:`gnbook.deep_nonlinear.duals`
    factors
        :math:`c_1, \dots, c_L`, one for each weight matrix, not negative
    gain
        g, the same for all layers: sqrt(2) for the ReLU at Kaiming initialisation
    branch
        :math:`\beta`, or None for a chain

    Returns
    -------
    :math:`\Theta_L`, n times the Gauss-Newton matrix in its Gram form.

    Raises
    ------
    ValueError
        Factors that are none or negative, a gain or branch that is not finite, or a sample that is zero.

    References
    ----------
    A. Jacot, F. Gabriel, C. Hongler (2018), NeurIPS 31.

    Examples
    --------
    >>> import torch
    >>> from gnbook.deep_nonlinear.duals import leaky_relu
    >>> wide_kernel(2**0.5 * torch.eye(2), leaky_relu(0.0), [1, 1], gain=2**0.5)
    tensor([[4.0000, 0.6366],
            [0.6366, 4.0000]], dtype=torch.float64)
    """
    x = as_samples(x)
    if len(factors) == 0 or any(not 0 <= factor < math.inf for factor in factors):
        raise ValueError(f"factors is {list(factors)}; one number from 0 on for each weight matrix was expected.")
    if not math.isfinite(gain) or not math.isfinite(branch or 0.0):
        raise ValueError(f"gain is {gain} and branch {branch}; finite numbers were expected.")
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
    r"""Return the factors :math:`m_{l-1} / g^2` of :func:`wide_kernel` for derivatives by the weights themselves.

    As the width grows all hidden layers and the output get the same factor, and the first layer of d columns falls
    behind by d / m: the limit of the kernel over m is that of the factors :math:`(0, 1, \dots, 1) / g^2`.

    Parameters
    ----------
    widths
        `[d, m_1, ..., k]`, from the input to the output
    gain
        g

    Examples
    --------
    >>> standard_factors([3, 100, 100, 10], 1.0)
    [3.0, 100.0, 100.0]
    """
    if len(widths) < 2 or any(width < 1 for width in widths) or not 0 < gain < math.inf:
        raise ValueError(
            f"widths is {list(widths)} and gain {gain}; at least two integers from 1 on, [inputs, ..., outputs], and a "
            "positive gain were expected."
        )
    return [width / gain**2 for width in widths[:-1]]


def deep_relu_condition(norms: Float[Tensor, " n"]) -> float:
    r"""Return the limit of kappa of the wide leaky ReLU network with depth: that of :math:`3 D^2 + D 1 1^\top D`.

    D holds the norms of the samples, which are distinct in direction. It is :math:`(n + 3) / 3` for equal norms, and
    no smaller for others.

    Parameters
    ----------
    norms
        of the samples, positive

    Examples
    --------
    >>> import torch
    >>> round(deep_relu_condition(torch.ones(9)), 12)
    4.0
    """
    norms = as_float64(norms, "norms")
    if norms.ndim != 1 or (norms <= 0).any():
        raise ValueError(f"norms has shape {tuple(norms.shape)} or an entry that is not positive; norms are positive.")
    values = torch.linalg.eigvalsh(3 * norms.square().diag() + torch.outer(norms, norms))
    return (values[-1] / values[0]).item()


def correlations(x: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    """Return the absolute cosines between samples, with zeros on the diagonal.

    Parameters
    ----------
    x
        samples in rows, none of them zero

    Examples
    --------
    >>> import torch
    >>> correlations(torch.tensor([[1.0, 0.0], [-3.0, 4.0]]))
    tensor([[0.0000, 0.6000],
            [0.6000, 0.0000]], dtype=torch.float64)
    """
    x = as_samples(x)
    if (x == 0).all(1).any():
        raise ValueError(
            f"Sample {int((x == 0).all(1).nonzero()[0])} is zero; leave it out, since it has no direction."
        )
    unit = x / x.norm(dim=1, keepdim=True)
    return (unit @ unit.mT).abs().clamp_max(1.0).fill_diagonal_(0.0)
