"""A small convolutional network as one trains them: biases, cross-entropy, gradient descent or Adam, group norm."""

from collections.abc import Iterator
from itertools import product

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call, jacrev

import gnlib

RATES = {"gradient descent": (0.03, 0.1, 0.3, 1.0, 3.0), "Adam": (0.001, 0.003, 0.01, 0.03, 0.1)}
KINDS = ("as they are", "less the mean of each channel", "less the mean image")
LAYERS = ("1", "2", "3", "all")
SHARES = {"eight_tenths": 0.8, "half": 0.5, "tenth": 0.1}  # of a network's own loss at the start


def inputs(n: int, stride: int) -> tuple[dict[str, Float[Tensor, "n 3 h w"]], Int[Tensor, " n"]]:
    """Return images of CIFAR-10 as they are, less one mean for each channel, and less the mean of each pixel."""
    x, labels = gnlib.load("cifar10", n, stride=stride)
    side = -(-32 // stride)
    x = x.view(n, 3, side, side).float()
    return dict(zip(KINDS, (x, x - x.mean((0, 2, 3), keepdim=True), x - x.mean(0)), strict=True)), labels


def network(seed: int, norm: bool, side: int) -> nn.Sequential:
    """Return two convolutions and a linear layer, as torch draws them, with group norm before each ReLU or without."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        parts: list[nn.Module] = []
        for before, after in ((3, 8), (8, 16)):
            parts.append(nn.Conv2d(before, after, 3, stride=2, padding=1))
            parts += [nn.GroupNorm(4, after), nn.ReLU()] if norm else [nn.ReLU()]
            side = -(-side // 2)
        return nn.Sequential(*parts, nn.Flatten(), nn.Linear(16 * side**2, 10)).float()


def weighted(net: nn.Sequential) -> list[nn.Module]:
    """Return the layers whose weights are matrices: two convolutions and the last layer."""
    return [part for part in net if isinstance(part, nn.Conv2d | nn.Linear)]


def layer_kappas(net: nn.Sequential, x: Float[Tensor, "n 3 h w"]) -> list[float]:
    """Return the condition number of the Gauss-Newton block of each layer, weights and bias, for the squared error."""
    net, x, found = net.double(), x.double(), []
    for layer in weighted(net):
        own = {name: p.detach() for name, p in net.named_parameters() if any(p is q for q in layer.parameters())}
        jacobian = jacrev(lambda some: functional_call(net, some, (x,)).flatten())(own)
        s = torch.linalg.svdvals(torch.cat([part.flatten(1) for part in jacobian.values()], 1))
        found.append((s[0] / s[s > 1e-10 * s[0]][-1]).item() ** 2)
    return found


def steps_to(
    net: nn.Sequential, x: Tensor, labels: Tensor, layer: str, optimizer: str, rate: float, limit: int
) -> list[int | None]:
    """Return the steps to each of `SHARES` of the loss at the start, None for those that `limit` steps do not reach.

    All images are in each step. One layer alone is trained, or all; one alone is stopped at half of its loss.
    """
    trained = list((net if layer == "all" else weighted(net)[int(layer) - 1]).parameters())
    stepper = (torch.optim.Adam if optimizer == "Adam" else torch.optim.SGD)(trained, lr=rate)
    goals = list(SHARES.values())
    found: list[int | None] = [None] * len(goals)
    last = len(goals) - 1 if layer == "all" else 1
    first = nn.functional.cross_entropy(net(x), labels).item()
    for step in range(limit + 1):
        loss = nn.functional.cross_entropy(net(x), labels)
        found = [
            step if at is None and loss.item() <= goal * first else at for at, goal in zip(found, goals, strict=True)
        ]
        if found[last] is not None or not loss.item() < 1e3:
            break
        for p, gradient in zip(trained, torch.autograd.grad(loss, trained), strict=True):
            p.grad = gradient
        stepper.step()
    return found


def trainings(seed: int, n: int = 100, stride: int = 2, limit: int = 500) -> Iterator[dict]:
    """Yield κ on the first 40 images, and the fewest steps over all rates, for each way of training and each layer."""
    kinds, labels = inputs(n, stride)
    side = -(-32 // stride)
    for norm, (name, x) in product((False, True), kinds.items()):
        kappas = [float(f"{kappa:.4g}") for kappa in layer_kappas(network(seed, norm, side), x[:40])]
        for optimizer, (layer, kappa) in product(RATES, zip(LAYERS, [*kappas, None], strict=True)):
            runs = [
                steps_to(network(seed, norm, side), x, labels, layer, optimizer, rate, limit)
                for rate in RATES[optimizer]
            ]
            best = [min((at for at in each if at is not None), default=None) for each in zip(*runs, strict=True)]
            of = {"norm": norm, "seed": seed, "images": name, "optimizer": optimizer, "layer": layer, "kappa": kappa}
            yield of | dict(zip(SHARES, best, strict=True))
