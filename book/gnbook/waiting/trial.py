"""The law of waiting on a network at its start: how much of the loss lies on each eigenvalue, and what T* says."""

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

import gnlib
from gnbook.results import Cell
from gnlib.checks import numerical_rank
from gnlib.laws import waiting
from gnlib.losses import Loss, loss_of
from gnlib.problem import with_root

RATES = np.linspace(0.5, 1.99, 150)
"""Learning rates at which the linear model is stable, over one by the largest eigenvalue."""

ROUNDING = 1e-9
"""Of the share of the loss that is to be left."""

MOST_STEPS = 2**60
"""More than an eigenvalue of rounding takes; a linear model that is not at its goal by then never gets there."""


class Spread(NamedTuple):
    r"""How the loss above its minimum is spread over the eigenvalues of the Gauss-Newton matrix.

    Attributes
    ----------
    eigenvalues
        ascending, those that double precision does not tell from zero set to zero
    shares
        of the squared residual on each
    above
        the loss at the start less the least value of its quadratic model
    """

    eigenvalues: Float[np.ndarray, " q"]
    shares: Float[np.ndarray, " q"]
    above: float

    def goal_of(self, start: float, loss: float) -> float:
        """Return the share of `above` that is left where the quadratic model has fallen from `start` to `loss`.

        For the squared error it is `loss / start`. It is negative where the model never falls so far.
        """
        return 1 - (start - loss) / self.above


def spread_of(gram: Float[Tensor, "nk nk"], loss: Loss, outputs: Float[Tensor, "n k"]) -> Spread:
    r"""Return how the loss of a network is spread over the eigenvalues.

    Let g be the gradient of the loss of each sample by its outputs, and :math:`R R^\top` the second derivative, with g
    in the range of R: :math:`g = R u`. The quadratic model of the loss round the outputs is

    .. math:: L + \tfrac1n g^\top \delta + \tfrac1{2n} \delta^\top R R^\top \delta
        = L - \tfrac1{2n} \lVert u \rVert^2 + \tfrac1{2n} \lVert u + R^\top \delta \rVert^2 ,

    so :math:`\lVert u \rVert^2 / 2n` is what the loss is above its minimum. Gradient descent of a network that is
    linear in its weights moves the outputs by :math:`\delta \leftarrow \delta - \eta K (g + R R^\top \delta)` with
    :math:`K = \frac1n J J^\top`, and :math:`v = u + R^\top \delta` by :math:`v \leftarrow v - \eta R^\top K R \, v`:
    each eigenvector of the matrix of the loss by itself. Squared parts of u along them are the shares. For the squared
    error R is the identity, u the residual and the model exact; for softmax cross-entropy it holds near the start only.

    Parameters
    ----------
    gram
        K
    loss, outputs
        the loss with its targets, and the outputs of the network

    Examples
    --------
    >>> x, y = torch.tensor([[2.0, 0.0], [0.0, 1.0]]).double(), torch.tensor([[1.0], [3.0]]).double()
    >>> outputs = torch.zeros_like(y)  # of a line that is zero
    >>> found = spread_of(x @ x.mT / 2, loss_of("mse", y, outputs), outputs)
    >>> found.eigenvalues.round(6), found.shares.round(6), round(found.above, 6)
    (array([0.5, 2. ]), array([0.9, 0.1]), 2.5)
    """
    root, gradient = loss.root(outputs), loss.gradient(outputs)
    residual = torch.linalg.lstsq(root, gradient[:, :, None]).solution.flatten()
    values, vectors = torch.linalg.eigh(with_root(root, gram))
    values[: len(values) - numerical_rank(values, len(values))] = 0.0
    squares = (vectors.mT @ residual).square()
    return Spread(values.numpy(), (squares / squares.sum()).numpy(), squares.sum().item() / (2 * len(outputs)))


def steps_to(spread: Spread, rate: float, goal: float) -> float:
    """Return the steps of the linear model to a share of the loss above its minimum, inf if it never gets there.

    Parameters
    ----------
    spread
        of the loss
    rate
        learning rate, no larger than one over the largest eigenvalue: the loss falls at each step
    goal
        share to reach

    Examples
    --------
    >>> steps_to(Spread(np.array([0.5, 1.0]), np.array([0.5, 0.5]), 1.0), rate=1.0, goal=0.01)  # 0.5 / 4^3
    3
    """
    with np.errstate(divide="ignore"):
        pace = -2 * np.log1p(-np.minimum(rate * spread.eigenvalues, 1))  # of the loss, infinite if one step does all

    def left(steps: int) -> float:
        return float(spread.shares @ np.exp(-pace * steps))

    high = 1
    while left(high) > goal:
        high *= 2
        if high > MOST_STEPS:
            return math.inf
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if left(middle) > goal else (low, middle)
    return high


def row_of(network: nn.Module, x: Float[Tensor, "n ..."], y: Tensor, loss: str, goal: float) -> dict[str, Cell]:
    r"""Return what the law of waiting says of a network at its start.

    At the rate :math:`1 / \lambda_{\max}`: `lower` and `upper` bound on the steps of the linear model, its `steps`, the
    `eigenvalue` that is waited for, and the largest over it, `effective`. `least` is the smallest of the lower bounds
    at all of `RATES`, at `least_rate` over :math:`1 / \lambda_{\max}`. `lower_tenth` is the lower bound on the steps to
    a tenth of what the loss, or its quadratic model, is above its minimum, whatever `goal` is. `never` is the share of
    the loss on zero eigenvalues. `kappa` is of the Gram matrix without the loss, and all others of the matrix of the
    loss.

    Parameters
    ----------
    network, x, y, loss
        as for :func:`spread_of`
    goal
        loss to reach, below that at the start; all steps are infinite if the quadratic model does not get there. They
        are missing where a softmax is so sure and so wrong that rounding hides the goal from the model
    """
    gram = gnlib.GaussNewton(network, x, mode="train" if network.training else "eval").gram()
    with torch.no_grad():
        outputs = network(x)
    of, values = loss_of(loss, y, outputs), torch.linalg.eigvalsh(gram)
    spread, start = spread_of(gram, of, outputs), of.value(outputs)
    kappa = (values[-1] / values[-numerical_rank(values, len(values))]).item()
    row: dict[str, Cell] = {"n": len(x), "loss": loss, "kappa": kappa, "initial_loss": start}
    share, largest = spread.goal_of(start, goal) if spread.above else 1.0, spread.eigenvalues[-1]
    if not share < 1 - ROUNDING:
        return row
    row |= {
        "kappa_loss": float(largest / spread.eigenvalues[spread.eigenvalues > 0][0]),
        "largest": float(largest),
        "goal": share,
        "lower_tenth": waiting(spread.eigenvalues, spread.shares, rate=1 / largest, goal=0.1).lower,
        "never": float(spread.shares[spread.eigenvalues == 0].sum()),
    }
    if share <= 0:
        return row | dict.fromkeys(("lower", "upper", "effective", "steps", "least"), math.inf)
    found = waiting(spread.eigenvalues, spread.shares, rate=1 / largest, goal=share)
    tried = {m: waiting(spread.eigenvalues, spread.shares, rate=m / largest, goal=share).lower for m in RATES}
    least_rate = min(tried, key=tried.__getitem__)
    return row | {
        "lower": found.lower,
        "upper": found.upper,
        "eigenvalue": found.eigenvalue,
        "effective": found.effective_condition_number,
        "steps": steps_to(spread, 1 / largest, share),
        "least": tried[least_rate],
        "least_rate": float(least_rate),
    }
