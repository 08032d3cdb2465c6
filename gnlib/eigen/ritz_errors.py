r"""How far the Ritz values of a block may be from the eigenvalues that they approximate.

With Ritz vectors X, values :math:`\theta_1, \dots, \theta_b` and residuals :math:`R = G X - X \Theta`, there is an
eigenvalue within :math:`\|r_i\|` of each value. The error of the first one is much smaller, of second order, when
the rest of the spectrum is known to lie beyond some :math:`\beta`: by elimination of the rest, the end of G is no
further out than that of :math:`\Theta \pm R^\top R / |\theta_1 - \beta|` (Temple and Kato, for a block). The last of
the Ritz values, less its own error, stands for :math:`\beta`.

Errors are in double precision, so that those of second order show whatever the precision of the vectors.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def residual_errors(values: Float[Tensor, " b"], residual: Float[Tensor, "n b"]) -> Float[Tensor, " b"]:
    """Return relative errors of the values at either end, the outermost first, from the size of their residuals."""
    eps = torch.finfo(values.dtype).eps
    coupling = (residual[:, :-1].mT @ residual[:, :-1]).double()
    values, linear = values.double(), torch.linalg.vector_norm(residual, dim=0).double()
    linear = torch.where(linear <= eps * values.abs().max(), 0, linear)
    errors = torch.where(values > 0, linear / values, torch.inf)
    distance = (values[0] - values[-1]).abs() - linear[-1]
    if len(values) > 1 and distance > 0 and values[0] > 0:
        below = values[0] < values[-1]
        moved = values[:-1].diag() + (-1 if below else 1) * coupling / distance
        moved = torch.linalg.eigvalsh(moved)[0 if below else -1]
        errors[0] = torch.minimum(errors[0], (moved / values[0] - 1).abs())
    return errors


def relative_errors(
    values: Float[Tensor, " b"],
    residual: Float[Tensor, "n b"],
    solved: Float[Tensor, "n b"],
    *,
    slack: float,
    shift: float,
    proved: bool,
) -> Float[Tensor, " b"]:
    r"""Return relative errors of the values at the lower end, the smallest first.

    The residuals are measured by the inverse of a matrix :math:`N - \sigma` with :math:`G \ge` `slack` N, which
    bounds relative errors, however far below the largest eigenvalue the values lie.

    Parameters
    ----------
    values, residual
        Ritz values and their residuals
    solved
        the residuals multiplied by the inverse of N - shift
    slack, shift
        G - slack shift is at least slack (N - shift)
    proved
        whether slack is known, not guessed; if not, nothing of second order is made of it
    """
    weighted, values = (residual.mT @ solved).double() / slack, values.double()
    above = values - slack * shift
    linear = (weighted.diagonal().clamp_min(0) * above).sqrt() / values
    linear = torch.where(above > 0, linear, torch.inf)  # otherwise the value is nothing but rounding
    errors = linear.clone()
    beyond = values[-1] * (1 - linear[-1])
    if proved and len(values) > 1 and beyond > values[0]:
        share = 1 - above[0] / (beyond - slack * shift)
        moved = 1 - torch.linalg.eigvalsh(values[:-1].diag() - weighted[:-1, :-1] / share)[0] / values[0]
        errors[0] = torch.minimum(errors[0], moved.clamp_min(0))
    return errors
