"""Other ways to a better kernel: descent divided by the root of a diagonal, or by the features of each layer."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnbook.design.layers import floored_roots, jacobian_of
from gnbook.design.objectives import flow_time
from gnbook.shared.training import GradientDescent, Training, fastest, train

Gradients = Mapping[str, Float[Tensor, "rows _"]]
Divide = Callable[[Gradients], Gradients]
r"""From gradients by each parameter, a row for each, to these divided by P: :math:`P^{-1} g`."""


def plain(_network: nn.Module, _x: Float[Tensor, "n ..."]) -> Divide:
    """Return what leaves gradients as they are."""
    return dict


def diagonal(network: nn.Module, x: Float[Tensor, "n ..."]) -> Divide:
    """Return the division by the root of the diagonal of the Gauss-Newton matrix, as for Adam."""
    roots = {name: floored_roots(jacobian, len(x)) for name, jacobian in jacobian_of(network, x).items()}
    return lambda gradients: {name: gradient / roots[name] for name, gradient in gradients.items()}


def features(network: nn.Module, x: Float[Tensor, "n ..."], *, damping: float) -> Divide:
    r"""Return the division by K-FAC's input factors alone, :math:`A_l + \delta_l I` for each layer.

    :math:`A_l` is the second moment of what a linear layer is applied to, with a one for its bias, and multiplies the
    inputs of its weights. The network has nothing but linear layers with biases, in the order in which it applies them,
    in double precision; `damping` is :math:`\delta_l` over the mean eigenvalue of :math:`A_l`.

    J. Martens, R. Grosse (2015), Optimizing neural networks with Kronecker-factored approximate curvature, ICML,
    section 3 (both factors; the other one, of the gradients, is left out).
    """
    layers = {name: m for name, m in network.named_modules() if isinstance(m, nn.Linear)}
    seen: list[Tensor] = []
    hooks = [m.register_forward_pre_hook(lambda _m, inputs: seen.append(inputs[0].detach())) for m in layers.values()]
    network(x)
    for hook in hooks:
        hook.remove()
    inverses: dict[str, Tensor] = {}
    for name, inputs in zip(layers, seen, strict=True):
        applied_to = nn.functional.pad(inputs, (0, 1), value=1.0)
        moment = applied_to.mT @ applied_to / len(x)
        added = damping * moment.trace() / len(moment) * torch.eye(len(moment), device=moment.device)
        inverses[name] = torch.linalg.inv(moment + added)

    def divide(gradients: Gradients) -> Gradients:
        divided = {}
        for name, inverse in inverses.items():
            weights, bias = (gradients[f"{name}.{part}"] for part in ("weight", "bias"))
            both = torch.cat([weights.unflatten(1, (bias.shape[1], -1)), bias[:, :, None]], 2) @ inverse
            divided |= {f"{name}.weight": both[:, :, :-1].flatten(1), f"{name}.bias": both[:, :, -1]}
        return divided

    return divide


def divided_kernel(network: nn.Module, x: Float[Tensor, "n ..."], divide: Divide) -> Float[Tensor, "nk nk"]:
    r"""Return :math:`\frac1n J P^{-1} J^\top`, by which descent divided by P moves the outputs."""
    jacobian = jacobian_of(network, x)
    divided = divide(jacobian)
    return sum(jacobian[name] @ divided[name].mT for name in jacobian) / len(x)


def quality(kernel: Float[Tensor, "nk nk"], residual: Float[Tensor, "n k"], goal: float) -> tuple[float, float]:
    """Return the condition number of a kernel, and the steps of its linear model to a goal at half its largest rate."""
    values, vectors = torch.linalg.eigh(kernel)
    squares = (vectors.mT @ residual.flatten()).square() / (2 * len(residual))
    return (values[-1] / values[0]).item(), flow_time((values / values[-1]).clamp_min(0), squares, goal)


class DividedDescent(GradientDescent):
    """Gradient descent whose gradients are divided by a P that stays as it is."""

    def __init__(self, parameters: Iterable[Tensor], lr: float, *, names: Iterable[str], divide: Divide) -> None:
        super().__init__(parameters, lr)
        self.names, self.divide = [*names], divide

    @torch.no_grad()
    def step(self) -> None:
        """Move all parameters."""
        named = dict(zip(self.names, self.param_groups[0]["params"], strict=True))
        divided = self.divide({name: parameter.grad.reshape(1, -1) for name, parameter in named.items()})
        for name, parameter in named.items():
            parameter.grad = divided[name].view_as(parameter)
        super().step()


def divided_training(
    network: nn.Module, x: Float[Tensor, "n ..."], y: Float[Tensor, "n k"], divide: Divide, **how: float
) -> Training:
    """Train a copy of a network, as `train` does it, by descent of the squared error divided by a P that stays."""
    optimizer = partial(DividedDescent, names=dict(network.named_parameters()), divide=divide)
    return train(network, x, y, optimizer=optimizer, **how)


PRECONDITIONERS: dict[str, Callable[[nn.Module, Tensor], Divide]] = {
    "none": plain,
    "diagonal": diagonal,
    "features, damping 0.001": partial(features, damping=0.001),
    "features, damping 0.1": partial(features, damping=0.1),
}
"""Constructors of the divisions that are tried, from a network and samples."""


class Divided(NamedTuple):
    """A training by descent divided by a preconditioner.

    `kappa` and `forecast` are those of its kernel and linear model; `rate` is the best one, over that of the forecast;
    `losses` are none where the training arrives at no rate.
    """

    name: str
    kappa: float
    forecast: float
    rate: float
    losses: list[float]

    @property
    def steps(self) -> int | None:
        """To the goal."""
        return len(self.losses) - 1 if self.losses else None


def divided_trainings(
    network: nn.Module, x: Float[Tensor, "n ..."], y: Float[Tensor, "n k"], *, goal: float, horizon: int
) -> Iterator[Divided]:
    """Yield the training of a network with each of :data:`PRECONDITIONERS`, at the best of all rates in factors of two.

    They end at the loss `goal`, or after `horizon` steps.
    """
    for name, way in PRECONDITIONERS.items():
        divide = way(network, x)
        kernel = divided_kernel(network, x, divide)
        largest = torch.linalg.eigvalsh(kernel)[-1].item()
        rates = [2.0**power / largest for power in range(4, -9, -1)]
        best = fastest(partial(divided_training, network, x, y, divide, until=goal), rates, horizon)
        rate, losses = (best[0] * largest, best[1].losses) if best else (math.nan, [])
        kappa, forecast = quality(kernel, network(x).detach() - y, goal)
        yield Divided(name=name, kappa=kappa, forecast=forecast, rate=rate, losses=losses)
