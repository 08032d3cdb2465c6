"""Ways to begin: those that anybody has, those that look at data, and those that search for one gain a layer."""

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from gnbook.design.layers import layers_of, weights_of
from gnbook.design.objectives import edge, log_condition, log_time
from gnbook.design.search import search, with_gains
from gnbook.shared.networks import initialise, kaiming, orthogonal
from gnbook.shared.training import half_squared_error
from gnbook.shared.tuning import constant_loss

ROUNDS = 100  # of MetaInit and of GradInit
MOMENTUM = 0.9  # of MetaInit
RATE = 0.03  # of the logarithms of gains, of both
STEP = 0.1  # of GradInit, the step that it looks ahead
NORM = 1.0  # of the gradient, which GradInit allows
MOST_SLOPE = 1.0  # by a gain, beyond which GradInit clips it
EPSILON = 1e-5  # of MetaInit
TRIES, NEAR = 10, 0.01  # of LSUV, for each layer


class Data(NamedTuple):
    """What an initialisation may look at."""

    x: Float[Tensor, "n ..."]
    y: Float[Tensor, "n k"]


@torch.no_grad()
def last_layer_zero(network: nn.Module) -> nn.Module:
    """Fill the weights of the last layer with zeros, in place: all outputs begin at zero, as with Fixup.

    H. Zhang, Y. N. Dauphin, T. Ma (2019), Fixup initialization, ICLR, section 3 (its first rule; the others are about
    residual branches).
    """
    [*weights_of(network).values()][-1].zero_()
    return network


@torch.no_grad()
def unit_variance(network: nn.Module, x: Float[Tensor, "n ..."]) -> nn.Module:
    """Scale the weights, layer by layer from the input, to preactivations of variance one on these samples, in place.

    It is LSUV if the weights are orthogonal before. A layer is scaled until its variance is within a hundredth of one.

    D. Mishkin, J. Matas (2016), All you need is a good init, ICLR, Algorithm 1.
    """
    for layer in network.modules():
        if not isinstance(layer, nn.Linear | nn.Conv2d):
            continue
        seen: list[Tensor] = []
        hook = layer.register_forward_hook(lambda _module, _inputs, output, seen=seen: seen.append(output))
        for _ in range(TRIES):
            network(x)
            variance = seen[-1].var()
            if (variance - 1).abs() < NEAR:
                break
            layer.weight.div_(variance.sqrt())
        hook.remove()
    return network


def meta_init(network: nn.Module, data: Data) -> Float[Tensor, " layers"]:
    r"""Return the gains of MetaInit: of a small change of the gradient along itself, its gradient quotient.

    The quotient is that of the gradient g and its product with the Hessian, the mean over the weights of
    :math:`|(g - H g) / (g + \varepsilon \operatorname{sign} g) - 1|`. Its slope by the gain of each layer goes into
    momentum by its sign alone. As the authors have it, samples are noise and classes are drawn, anew in each round;
    they change norms by a fixed length, here it is a fixed share.

    Y. N. Dauphin, S. S. Schoenholz (2019), MetaInit: initializing learning by learning to initialize, NeurIPS 32,
    section 3 and the code in its appendix.
    """
    names, velocity, draws = [*weights_of(network)], 0.0, torch.Generator("cpu").manual_seed(0)
    z = torch.zeros(len(names), dtype=torch.float64, device=data.x.device)
    for _ in range(ROUNDS):
        z = z.detach().requires_grad_()
        noise = torch.randn(data.x.shape, generator=draws, dtype=torch.float64, device="cpu").to(data.x)
        drawn = data.y[torch.randint(len(data.y), (len(data.y),), generator=draws, device="cpu").to(data.y.device)]
        weights = _scaled(network, z)
        loss = half_squared_error(functional_call(network, weights, (noise,)), drawn)
        gradients = torch.autograd.grad(loss, [*weights.values()], create_graph=True)
        halved = sum(g.square().sum() for g in gradients) / 2
        products = torch.autograd.grad(halved, [*weights.values()], create_graph=True)
        changes = [
            ((g - p) / (g + EPSILON * torch.where(g >= 0, 1.0, -1.0)) - 1).abs().sum()
            for g, p in zip(gradients, products, strict=True)
        ]
        quotient = sum(changes) / sum(g.numel() for g in gradients)
        velocity = MOMENTUM * velocity - (1 - MOMENTUM) * RATE * torch.autograd.grad(quotient, z)[0].sign()
        z = z + velocity
    return z.detach().exp()


def grad_init(network: nn.Module, data: Data) -> Float[Tensor, " layers"]:
    """Return the gains of GradInit: of the lowest loss after one step of descent, with a gradient of norm one at most.

    In each round the gains take a step of Adam, down the norm where that is above one, else down the loss after a step
    of rate 0.1, with averages for each of the two and slopes that are clipped. As in the authors' code the step is not
    differentiated, and half of the samples of that loss have no part in the gradient. The authors learn on fresh
    mini-batches in each round; here it is thirds of one.

    C. Zhu et al. (2021), GradInit: learning to initialize neural networks for stable and efficient training,
    NeurIPS 34, Algorithm 1.
    """
    thirds = torch.arange(len(data.x), device=data.x.device).chunk(3)
    here, there = (torch.cat([thirds[0], thirds[i]]) for i in (1, 2))
    z = torch.zeros(len(weights_of(network)), dtype=torch.float64, device=data.x.device, requires_grad=True)
    of_norm, of_loss = (torch.optim.Adam([z], RATE) for _ in range(2))
    for _ in range(ROUNDS):
        weights = _scaled(network, z)
        loss = half_squared_error(functional_call(network, weights, (data.x[here],)), data.y[here])
        gradients = torch.autograd.grad(loss, [*weights.values()], create_graph=True)
        found, optimizer = sum(g.square().sum() for g in gradients).sqrt(), of_norm
        if found <= NORM:
            optimizer = of_loss
            ahead = {name: w - STEP * g.detach() for (name, w), g in zip(weights.items(), gradients, strict=True)}
            found = half_squared_error(functional_call(network, ahead, (data.x[there],)), data.y[there])
        z.grad = torch.autograd.grad(found, z)[0].clamp(-MOST_SLOPE, MOST_SLOPE)
        optimizer.step()
    return z.detach().exp()


def smallest_condition(network: nn.Module, data: Data) -> Float[Tensor, " layers"]:
    """Return the gains of product one with the smallest condition number."""
    layers = layers_of(network, data.x)
    return search(lambda z: log_condition(layers.kernel(z)), len(layers.names), degrees=layers.degrees).gains


def shortest_forecast(
    network: nn.Module, data: Data, *, preconditioned: bool = False, held: bool = False
) -> Float[Tensor, " layers"]:
    """Return the gains with the shortest forecast to a tenth of the best constant's loss.

    If `preconditioned`, the kernel is that of Adam. If `held`, the product of the gains is one; else it is such that
    the parameters move by their own size.
    """
    layers, goal = layers_of(network, data.x, preconditioned=preconditioned), constant_loss(data.y, "mse") / 10

    def objective(z: Float[Tensor, " layers"]) -> Float[Tensor, ""]:
        time, moved = log_time(layers, z, data.y, goal)
        return time if held else time + edge(moved)

    return search(objective, len(layers.names), degrees=layers.degrees if held else None).gains


def common_gain(network: nn.Module, data: Data) -> Float[Tensor, " layers"]:
    """Return one gain for all layers, such that the parameters of the linear model move by their own size."""
    layers, goal = layers_of(network, data.x), constant_loss(data.y, "mse") / 10
    found = search(lambda z: edge(log_time(layers, z.expand(len(layers.names)), data.y, goal)[1]), 1)
    return found.gains.expand(len(layers.names))


UNTUNED = ("torch's default", "Kaiming", "orthogonal", "LSUV", "last layer zero")
"""What nobody searches for."""

SEARCHED: dict[str, Callable[[nn.Module, Data], Tensor]] = {
    "condition number": smallest_condition,
    "forecast, product one": lambda network, data: shortest_forecast(network, data, held=True),
    "common gain": common_gain,
    "forecast": shortest_forecast,
    "forecast with K_P": lambda network, data: shortest_forecast(network, data, preconditioned=True),
    "MetaInit": meta_init,
    "GradInit": grad_init,
}
"""What finds gains to multiply Kaiming's weights with."""


def initialised(network: nn.Module, name: str, data: Data, *, seed: int) -> nn.Module:
    """Return a copy of a network that is initialised in one of the ways `UNTUNED`; LSUV looks at the data.

    >>> data = Data(torch.eye(2), torch.eye(2))
    >>> initialised(nn.Linear(2, 2), "last layer zero", data, seed=0)(data.x).abs().sum().item()
    0.0
    """
    network, generator = copy.deepcopy(network), torch.Generator("cpu").manual_seed(seed)
    if name == "torch's default":
        return network
    if name in ("Kaiming", "last layer zero"):
        initialise(network, kaiming, generator=generator)
        return last_layer_zero(network) if name == "last layer zero" else network
    initialise(network, orthogonal, generator=generator)
    return unit_variance(network, data.x) if name == "LSUV" else network


def gained(network: nn.Module, gains: Float[Tensor, " layers"], *, seed: int) -> nn.Module:
    """Return a copy of a network with Kaiming's weights times gains."""
    generator = torch.Generator("cpu").manual_seed(seed)
    return with_gains(initialise(copy.deepcopy(network), kaiming, generator=generator), gains)


def _scaled(network: nn.Module, z: Float[Tensor, " layers"]) -> dict[str, Tensor]:
    """Return the weights that have gains, times these, as functions of their logarithms."""
    return {name: w.detach() * g for (name, w), g in zip(weights_of(network).items(), z.exp(), strict=True)}
