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
from gnlib.losses import loss_of

RATES = np.linspace(0.5, 1.99, 150)
"""Learning rates at which the linear model is stable, over one by the largest eigenvalue."""

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


def spread_of(network: nn.Module, x: Float[Tensor, "n ..."], y: Tensor, loss: str = "mse") -> Spread:
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
    network
        in the mode in which it is trained; it is left as it is
    x, y
        samples; targets for `"mse"`, class indices for `"cross_entropy"`
    loss
        `"mse"` or `"cross_entropy"`

    Examples
    --------
    >>> line = nn.Linear(2, 1, bias=False).double()
    >>> _ = nn.init.zeros_(line.weight)
    >>> x, y = torch.tensor([[2.0, 0.0], [0.0, 1.0]]).double(), torch.tensor([[1.0], [3.0]]).double()
    >>> found = spread_of(line, x, y)
    >>> found.eigenvalues.round(6), found.shares.round(6), round(found.above, 6)
    (array([0.5, 2. ]), array([0.9, 0.1]), 2.5)
    """
    matrix = gnlib.GaussNewton(network, x, y, loss, mode="train" if network.training else "eval").loss_gram()
    with torch.no_grad():
        outputs = network(x)
    of = loss_of(loss, y, outputs)
    root, gradient = of.root(outputs), of.gradient(outputs)
    residual = torch.linalg.lstsq(root, gradient[:, :, None]).solution.flatten()
    values, vectors = torch.linalg.eigh(matrix)
    values[: len(values) - numerical_rank(values, len(values))] = 0.0
    squares = (vectors.mT @ residual).square()
    return Spread(values.numpy(), (squares / squares.sum()).numpy(), squares.sum().item() / (2 * len(x)))


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
        loss to reach, below that at the start; all steps are infinite if the quadratic model does not get there
    """
    spread = spread_of(network, x, y, loss)
    with torch.no_grad():
        start = loss_of(loss, y, network(x)).value(network(x))
    # Where a softmax is sure and wrong, its quadratic model is so high that all goals are as good as its start.
    share, largest = min(spread.goal_of(start, goal), np.nextafter(1, 0)), spread.eigenvalues[-1]
    row: dict[str, Cell] = {
        "n": len(x),
        "loss": loss,
        "kappa": _kappa(spread if loss == "mse" else spread_of(network, x, network(x).detach() + 1)),
        "kappa_loss": _kappa(spread),
        "largest": float(largest),
        "initial_loss": start,
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


def _kappa(spread: Spread) -> float:
    positive = spread.eigenvalues[spread.eigenvalues > 0]
    return float(positive[-1] / positive[0])
