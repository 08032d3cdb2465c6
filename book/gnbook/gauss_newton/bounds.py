"""How fast gradient descent can be, from the condition number (Zhao 2024, section 2 and appendix H.1)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def gradient_descent_bound(
    step_sizes: Sequence[float], convexities: Sequence[float], distance: float = 1.0
) -> Float[Tensor, " points"]:
    r"""Return the bounds :math:`\prod_{i<k} (1 - \eta_i \mu_i)\, \|\theta_0 - \theta^*\|^2` of Zhao 2024, Eq. 3 and 28.

    They bound the squared distance to the minimum before each step and after the last, provided that
    :math:`\mu_i` bounds the curvature from below ALONG THE SEGMENT from :math:`\theta_i` to the minimum (in the mean
    that weights the point at fraction t of the way by 2(1 - t)), and that :math:`\eta_i \le 1/L_i` with :math:`L_i` a
    bound from above along the gradient step. Curvatures at the iterates alone, as the paper writes, are not enough.
    """
    steps, mu = (torch.tensor(values, dtype=torch.float64, device="cpu") for values in (step_sizes, convexities))
    return distance**2 * torch.cat([mu.new_ones(1), (1 - steps * mu).cumprod(0)])
