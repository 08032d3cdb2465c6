"""Smallest eigenvalue of one wide hidden layer of ReLUs, from a series of powers of the samples' correlations."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import as_samples

ONE_NORM = 1e-9  # relative difference below which samples have one norm


def relu_squares(degrees: int) -> Float[Tensor, " degrees"]:
    r"""Return the squares of the Hermite coefficients of the ReLU, :math:`a_k = E\, \max(z, 0)\, h_k(z)`.

    .. math::
        a_0^2 = \frac1{2\pi}, \quad a_1^2 = \frac14, \quad a_k^2 = \frac{((k - 3)!!)^2}{2 \pi\, k!}
        \quad \text{for even k,} \quad a_k = 0 \quad \text{for odd } k \ge 3 .

    Parameters
    ----------
    degrees
        number of coefficients, from degree 0 on

    Examples
    --------
    >>> relu_squares(5)
    tensor([0.1592, 0.2500, 0.0796, 0.0000, 0.0066], dtype=torch.float64)
    """
    squares = [1 / (2 * math.pi), 1 / 4]
    even = 1 / (4 * math.pi)
    for k in range(2, degrees):
        squares.append(0.0 if k % 2 else even)
        even *= 1.0 if k % 2 else (k - 1) ** 2 / ((k + 1) * (k + 2))  # from degree k to k + 2
    return torch.tensor(squares[:degrees], dtype=torch.float64)


def power_floors(x: Float[Tensor, "n d"], degrees: int = 200) -> Float[Tensor, " degrees"]:
    r"""Return lower bounds on the smallest eigenvalue of a wide ReLU network's kernel, one for each power; they add up.

    For samples of one norm with correlations R, at the gain :math:`\sqrt 2` and factors one, the kernel of one hidden
    layer is :math:`\Theta_2 = \frac4d \|x\|^2 \sum_k (1 + k)\, a_k^2\, R^{\circ k}`. The term of degree k is at least
    its smallest eigenvalue, which by Schur's product theorem does not fall with k; so the last number stands for all
    higher degrees too.

    Parameters
    ----------
    x
        samples in rows, all of one norm
    degrees
        number of terms, from degree 0 on; the sum of any of them is a bound

    Raises
    ------
    ValueError
        Samples of several norms, or zero.

    References
    ----------
    Q. Nguyen, M. Mondelli, G. Montufar (2021), ICML 139 (the term of a single degree, of the features alone).
    M. Murray, H. Jin, B. Bowman, G. Montufar (2023), ICLR (the series, for any depth).

    Examples
    --------
    >>> import torch
    >>> floors = power_floors(2**0.5 * torch.eye(2))
    >>> round(float(floors.sum()), 6)  # the kernel has 4 on its diagonal and 2 / pi beside it
    3.36338
    """
    x = as_samples(x)
    squares = x.square().sum(1)
    if not (squares > 0).all() or (squares / squares.mean() - 1).abs().max() > 2 * ONE_NORM:
        raise ValueError(
            f"The norms of x lie between {squares.min().sqrt():.3g} and {squares.max().sqrt():.3g}; samples of one "
            "norm were expected, not zero: divide each by its norm."
        )
    correlations = (x @ x.mT / squares.mean()).fill_diagonal_(1.0)
    power, smallest = torch.ones_like(correlations), []
    for _ in range(degrees):
        smallest.append(torch.linalg.eigvalsh(power)[0].clamp_min(0.0))
        power = power * correlations
    weights = relu_squares(degrees).to(x.device) * (1 + torch.arange(degrees, device=x.device))
    weights[-1] = 1 - weights[:-1].sum()  # all of them add up to E (z_+)^2 and the mean of its squared slope
    return 4 / x.shape[1] * squares.mean() * weights * torch.stack(smallest)
