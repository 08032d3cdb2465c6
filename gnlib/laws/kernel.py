"""The tangent kernel of infinitely wide networks of leaky ReLUs."""

import math
from collections.abc import Sequence
from numbers import Integral, Real

import numpy as np
from jaxtyping import Float


def relu_kernel(
    cosines: float | Sequence[float] | Float[np.ndarray, "*shape"], depth: int, slope: float = 0.0
) -> Float[np.ndarray, "*shape"]:
    r"""Return the tangent kernel of an infinitely wide network of leaky ReLUs, by the cosine between two inputs.

    With the angle :math:`\theta_l` between the two in layer l, and a gain that keeps norms,

    .. math::
        \cos \theta_{l + 1} = \frac{2 \alpha \cos \theta_l + \frac1\pi (1 - \alpha)^2 \bigl(\sin \theta_l
        + (\pi - \theta_l) \cos \theta_l\bigr)}{1 + \alpha^2}, \qquad
        \Theta_{l + 1} = \cos \theta_{l + 1}
        + \frac{2 \alpha + \frac1\pi (1 - \alpha)^2 (\pi - \theta_l)}{1 + \alpha^2}\, \Theta_l,

    from :math:`\Theta_1 = \cos \theta_1`. The kernel is :math:`\Theta_L / L`, so one for an input and itself; inputs of
    other norms multiply it by both norms.

    Parameters
    ----------
    cosines
        between inputs
    depth
        number L of weight matrices, all of which count alike (the parameterisation of the tangent kernel)
    slope
        slope :math:`\alpha` of negative values, 0 for the ReLU and 1 for a linear network

    References
    ----------
    Y. Cho, L. K. Saul (2009), NeurIPS 22. A. Jacot, F. Gabriel, C. Hongler (2018), NeurIPS 31.

    Examples
    --------
    >>> relu_kernel([1.0, 0.0, -1.0], depth=2).round(4)  # 1 / (2 pi) between orthogonal inputs
    array([1.    , 0.1592, 0.    ])
    >>> relu_kernel([0.0, 0.9], depth=1000).round(3)  # deep networks tell no angle from another: 1/4
    array([0.253, 0.256])
    """
    if not isinstance(depth, Integral) or isinstance(depth, bool) or depth < 1:
        raise ValueError(f"depth is {depth}; a whole number of layers from 1 on was expected.")
    if not (isinstance(slope, Real) and math.isfinite(slope)):
        raise ValueError(f"slope is {slope}; a finite number was expected, such as 0 for the ReLU.")
    cosine = np.asarray(cosines, dtype=float)
    if not (np.abs(cosine) <= 1 + 1e-9).all():
        raise ValueError("cosines are not all between -1 and 1; divide each input by its norm first.")
    kernel = cosine = cosine.clip(-1, 1)
    straight, bent = 2 * slope / (1 + slope**2), (1 - slope) ** 2 / (math.pi * (1 + slope**2))
    for _ in range(depth - 1):
        rest = math.pi - np.arccos(cosine)
        kernel = (straight + bent * rest) * kernel
        cosine = (straight * cosine + bent * (np.sqrt(1 - cosine**2) + rest * cosine)).clip(-1, 1)
        kernel = kernel + cosine
    return kernel / depth
