r"""Which eigenvalue a training waits for, and how many steps of gradient descent a goal takes within what.

Gradient descent of a linear model, of rate :math:`\eta`, multiplies the residual on an eigenvalue :math:`\lambda` by
:math:`1 - \eta \lambda` at each step. With :math:`s = -\log |1 - \eta \lambda|`, and :math:`F(s)` the share of the
squared residual on eigenvalues that fall no faster than :math:`e^{-s}`, T steps leave

.. math:: \operatorname{loss}(T) = \int e^{-2 T s} \, dF(s)

of the loss. Let T(e) be the first step at which it is at most e < 1, and

.. math:: T^*(e) = \sup_{s > 0} \frac{\log (F(s) / e)}{2 s}.

**Theorem.** :math:`T^*(e) \le T(e) \le \lceil 2\, T^*(e / 2) \rceil`, and at least one step, for every spectrum and
residual.

*Proof.* For each s, :math:`\operatorname{loss}(T) \ge F(s) e^{-2 T s}`, so :math:`\operatorname{loss}(T) \le e` needs
:math:`T \ge \log (F(s) / e) / 2 s`. Conversely :math:`F(s) \le \tfrac e2 e^{2 T^* s}` at each s, with
:math:`T^* = T^*(e / 2)`. By parts, for :math:`T > T^*`,

.. math:: \operatorname{loss}(T) = \int_0^\infty 2 T e^{-2 T s} F(s) \, ds
    \le \frac e2 \, \frac{T}{T - T^*},

which is at most e from :math:`T = 2 T^*` on, or at the first step if :math:`T^* = 0`. ∎

Both are nearly reached: the lower one by a residual on a single eigenvalue, the upper one by a residual whose shares
:math:`F(s) = \tfrac e2 e^{2 T^* s}` wait everywhere alike, as e tends to 0.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from gnlib.laws.recursion import Values
from gnlib.plain import as_dict
from gnlib.refused import Refused


@dataclass(frozen=True)
class Waiting:
    """The steps that gradient descent of a linear model takes to a goal, between two bounds.

    Attributes
    ----------
    lower, upper
        no fewer steps than the one, no more than the other; both are infinite if the goal is never reached
    eigenvalue
        that the lower bound comes from: the training waits for it
    largest
        eigenvalue with a share of the residual

    Examples
    --------
    >>> found = waiting([1.0, 0.1, 1e-6], [0.6, 0.39, 0.01], rate=1.0, goal=0.1)
    >>> print(found)
    between 6.6 and 20 steps; the training waits for the eigenvalue 0.1, 10 times smaller than the largest
    """

    lower: float
    upper: float
    eigenvalue: float
    largest: float

    to_dict = as_dict

    @property
    def effective_condition_number(self) -> float:
        """The largest eigenvalue over the one that the training waits for: kappa is this for the worst residual."""
        return self.largest / self.eigenvalue if self.eigenvalue else math.inf

    @property
    def steps(self) -> str:
        """Both bounds in words."""
        if self.lower == math.inf:
            return "no number of steps"
        if self.upper == math.inf:
            return f"at least {self.lower:.1f} steps"
        return f"between {self.lower:.1f} and {self.upper:g} steps"

    def __str__(self) -> str:
        """Return one line: both bounds and the eigenvalue."""
        if self.lower == math.inf:
            return f"never: more of the loss than the goal is on the eigenvalue {self.eigenvalue:g}, which stays"
        ratio = f"{self.effective_condition_number:.4g} times smaller than the largest"
        return f"{self.steps}; the training waits for the eigenvalue {self.eigenvalue:.4g}, {ratio}"


def waiting(
    eigenvalues: Values,
    shares: Values,
    rate: float,
    goal: float,
) -> Waiting:
    """Bound the steps of gradient descent to a share of the loss, and name the eigenvalue that they wait for.

    Exact for the spectrum that is given, up to the rounding of float64, as the supremum is one over its eigenvalues. A
    real network may leave its linear model, and reach the goal sooner.

    Parameters
    ----------
    eigenvalues
        of the Gauss-Newton matrix, in any order
    shares
        of the squared residual on each; their sum stands for the loss at the start
    rate
        learning rate, at most 2 over the largest eigenvalue
    goal
        share of the loss to reach, between 0 and 1

    Examples
    --------
    >>> one = waiting([2.0], [1.0], rate=0.25, goal=0.01)  # halves the residual at each step
    >>> round(one.lower, 3), one.upper
    (3.322, 8)
    >>> waiting([1.0, 0.0], [0.5, 0.5], rate=1.0, goal=0.1).upper  # half of the loss stays
    inf
    """
    values, parts = _vector(eigenvalues, "eigenvalues"), _vector(shares, "shares")
    if values.shape != parts.shape:
        raise Refused("wrong-matrix", f"{len(values)} eigenvalues have {len(parts)} shares; give one share for each.")
    if not parts.any():
        raise Refused("no-residual", "shares are all zero: there is no residual, so the loss is at its goal.")
    if not 0 < goal < 1:
        raise Refused("bad-option", f"goal is {goal}; a share of the loss between 0 and 1 was expected, such as 0.1.")
    values, parts = values[parts > 0], parts[parts > 0] / parts.sum()
    largest = values.max()
    if not (0 < rate < math.inf and rate * largest <= 2):
        stable = f"at most {2 / largest:.4g} (2 over the largest eigenvalue), where the loss falls" if largest else "1"
        raise Refused("rate-too-large", f"rate is {rate}; give a positive one, {stable}.")

    x = rate * values
    with np.errstate(divide="ignore"):
        speed = 0.0 - np.log1p(np.where(x < 1, -x, x - 2))  # -log |1 - x|, to the last digit near 0 and 2, never -0.0
    order = np.argsort(speed, kind="stable")
    speed, values, below = speed[order], values[order], np.cumsum(parts[order])
    below[-1] = 1.0  # rounding may leave it below a goal near the start
    lower, at = _supremum(speed, below, goal)
    above, _ = _supremum(speed, below, goal / 2)
    upper = max(1, math.ceil(2 * above)) if above < math.inf else above
    return Waiting(lower, upper, float(values[at]), float(largest))


def _supremum(speed: Float[np.ndarray, " r"], below: Float[np.ndarray, " r"], goal: float) -> tuple[float, int]:
    """Return the supremum of ``log(M / goal) / (2 s)``, and the first index at which it is attained."""
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(below > goal, np.log(below / goal) / (2 * speed), -1.0)
    at = int(np.argmax(steps))
    return float(steps[at]), at


def _vector(values: Values, name: str) -> Float[np.ndarray, " r"]:
    found = np.asarray(values, dtype=float)
    if found.ndim != 1 or not len(found) or not np.isfinite(found).all() or (found < 0).any():
        raise Refused(
            "wrong-matrix", f"{name} has shape {found.shape}; a list of finite numbers, none below zero, was expected."
        )
    return found
