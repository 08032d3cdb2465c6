"""The largest learning rate at which gradient descent, or an optimiser, is stable on the quadratic model of a loss."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop

from gnlib.diagnosis.inputs import Inputs
from gnlib.diagnosis.measured import Measured


@dataclass(frozen=True)
class StableRate:
    r"""The largest stable learning rate of an optimiser that descends in coordinates scaled by a fixed P.

    Along an eigenvector of :math:`P^{-1} G` with the eigenvalue :math:`\lambda` it iterates
    :math:`m \leftarrow \beta m + (1 - d) \lambda \theta`, :math:`\theta \leftarrow \theta - \eta m`.

    Attributes
    ----------
    optimizer
        what it is the rate of
    largest, smallest
        the ends of the non-zero spectrum, of :math:`P^{-1} G` if the optimiser has a P
    momentum, dampening, nesterov
        :math:`\beta`, d, and whether the gradient looks ahead
    decay
        weight decay, which adds to each eigenvalue
    """

    optimizer: str
    largest: float
    smallest: float
    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    decay: float = 0.0

    @property
    def limit(self) -> float:
        r"""The largest stable :math:`\eta \lambda`: 2 without momentum, 38 for Adam with :math:`\beta_1 = 0.9`."""
        beta = self.momentum
        if self.nesterov:
            return 2 * (1 + beta) / (1 + 2 * beta)
        return 2 * (1 + beta) / (1 - self.dampening)

    @property
    def rate(self) -> float:
        """The largest stable learning rate."""
        return self.limit / (self.largest + self.decay)

    def left(self, steps: int = 100, rate: float | None = None) -> float:
        """Return what is left of the slowest direction after some steps, at half the largest rate unless one is given.

        Weight decay is left out, as it moves the goal and not only the pace.
        """
        step = (self.rate / 2 if rate is None else rate) * self.smallest
        theta, m = 1.0, 0.0
        for _ in range(steps):
            gradient = step * theta
            m = self.momentum * m + (1 - self.dampening) * gradient
            theta -= gradient + self.momentum * m if self.nesterov else m
        return abs(theta)

    def __str__(self) -> str:
        """Return one line."""
        return f"{self.optimizer}: stable below a learning rate of {self.rate:.4g}"


def largest_stable_rate(
    module: nn.Module,
    x: Inputs,
    y: Any = None,
    *,
    loss: str | Callable[[Tensor, Any], Tensor] = "mse",
    optimizer: Optimizer | None = None,
    output: Callable[..., Tensor] | None = None,
    mode: str | None = None,
    memory: float = 4.0,
) -> StableRate:
    r"""Return the largest learning rate at which an optimiser is stable on the quadratic model of a loss.

    Gradient descent multiplies what is along an eigenvector by :math:`1 - \eta \lambda`, and is stable below
    :math:`2 / \lambda_{\max}`. With momentum, :math:`\theta_{t+1} = (1 + \beta - \eta (1 - d) \lambda) \theta_t - \beta
    \theta_{t-1}`, whose characteristic polynomial :math:`z^2 - (1 + \beta - \eta (1 - d) \lambda) z + \beta` has its
    first root outside the unit circle at :math:`z = -1`, when :math:`\eta \lambda = 2 (1 + \beta) / (1 - d)`: for
    torch's SGD, with :math:`d = 0`, that is :math:`2 (1 + \beta)`. Adam has :math:`d = \beta_1`, hence 38 at
    :math:`\beta_1 = 0.9`, for the largest eigenvalue of :math:`P^{-1} G`, whose P are the denominators of its step.

    Parameters
    ----------
    module, x, y, loss, output, mode, memory
        as for :func:`gnlib.diagnosis.report`
    optimizer
        SGD, Adam, AdamW, RMSprop or Adagrad of torch, with the parameters of the module; gradient descent without. Its
        own state makes P; before the first step, what the gradient would make of it, which takes `y`. Groups with
        other learning rates are measured in proportion to the first, whose rate is returned

    Raises
    ------
    TypeError
        Another optimiser; as :func:`gnlib.diagnosis.report`.
    ValueError
        An optimiser that has no parameter of the module, or no state where `y` is missing; as
        :func:`gnlib.diagnosis.report`.

    References
    ----------
    J. M. Cohen et al. (2022), Adaptive gradient methods at the edge of stability, arXiv:2207.14484 (the preconditioned
    sharpness, and 38). B. T. Polyak (1964), Some methods of speeding up the convergence of iteration methods, USSR
    Computational Mathematics and Mathematical Physics 4.

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Linear(2, 1, bias=False)
    >>> x = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    >>> largest_stable_rate(net, x).rate
    1.0
    >>> round(largest_stable_rate(net, x, optimizer=torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)).rate, 6)
    1.9
    """
    return stable_rate_of(Measured(module, x, y, loss=loss, output=output, mode=mode, memory=memory), optimizer)


def stable_rate_of(measured: Measured, optimizer: Optimizer | None = None) -> StableRate:
    """Return the largest stable rate for a network that has been measured."""
    if optimizer is None:
        found = measured.condition
        return StableRate("gradient descent", found.largest, found.smallest)
    weights = weights_of(measured, optimizer)
    group = optimizer.param_groups[0]
    if all((weight == 1).all() for weight in weights.values()):
        found = measured.condition
    else:
        matrix = measured.weighted(weights)
        found = measured.ends(torch.linalg.eigvalsh(matrix))
    momentum = group["betas"][0] if isinstance(optimizer, Adam | AdamW) else group.get("momentum", 0.0)
    dampening = momentum if isinstance(optimizer, Adam | AdamW) else group.get("dampening", 0.0)
    name = type(optimizer).__name__ + (f" with momentum {momentum:g}" if momentum else "")
    decay = group["weight_decay"] if isinstance(optimizer, SGD) else 0.0
    nesterov = group.get("nesterov", False)
    return StableRate(name, found.largest, found.smallest, momentum, dampening, nesterov, decay)


def weights_of(measured: Measured, optimizer: Optimizer) -> Mapping[str, Tensor]:
    """Return the diagonal of the inverse of P for each parameter, in units of the learning rate of the first group."""
    if not isinstance(optimizer, SGD | Adam | AdamW | RMSprop | Adagrad):
        kind = type(optimizer).__name__
        raise TypeError(
            f"optimizer is of type {kind}; SGD, Adam, AdamW, RMSprop or Adagrad of torch.optim was expected."
        )
    groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    own = {name: dict(measured.module.named_parameters())[measured.name_of(name)] for name in measured.named}
    if not any(id(p) in groups for p in own.values()):
        raise ValueError("optimizer has no parameter of the module; make it with module.parameters().")
    first = optimizer.param_groups[0]["lr"]
    gradients: dict[str, Tensor] = {}
    found = {}
    for name, p in own.items():
        group = groups.get(id(p))
        if group is None:  # which it leaves as it is
            found[name] = torch.zeros_like(p, dtype=torch.float64)
            continue
        scale = torch.ones_like(p, dtype=torch.float64)
        if not isinstance(optimizer, SGD):
            if not optimizer.state.get(p) and not gradients:
                gradients = _gradients(measured, type(optimizer).__name__)
            scale = _root(optimizer, group, optimizer.state.get(p) or {}, gradients.get(name)) + group["eps"]
        found[name] = float(group["lr"] / first) / scale
    return found


def _gradients(measured: Measured, kind: str) -> dict[str, Tensor]:
    try:
        return measured.gradient()
    except ValueError as error:
        raise ValueError(
            f"The {kind} has taken no step, so that it has no state to scale by; take one, or pass y, whose gradient "
            "makes the state of the first step."
        ) from error


def _root(
    optimizer: Optimizer, group: Mapping[str, Any], state: Mapping[str, Any], gradient: Tensor | None
) -> Tensor:
    """Return the root of the averaged squared gradient that an optimiser divides by; before its first step, after it."""
    if isinstance(optimizer, Adagrad):
        total = state["sum"].double() if gradient is None or state.get("step", 0) else _sum(group, gradient)
        return total.sqrt()
    if isinstance(optimizer, RMSprop):
        if not state:
            return (gradient.square() * (1 - group["alpha"])).sqrt()
        mean = state["grad_avg"].double().square() if group["centered"] else 0.0
        return (state["square_avg"].double() - mean).sqrt()
    if not state:
        return gradient.abs()
    average = state["max_exp_avg_sq" if group["amsgrad"] else "exp_avg_sq"].double()
    return (average / (1 - group["betas"][1] ** float(state["step"]))).sqrt()
