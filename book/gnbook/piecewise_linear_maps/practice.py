"""A small convolutional network as one trains them: biases, cross-entropy, mini-batches, Adam, group norm."""

from collections.abc import Iterator, Sequence
from itertools import product
from operator import itemgetter

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

import gnlib
from gnbook.results import Row
from gnbook.shared.training import train

RATES = {"gradient descent": (0.03, 0.1, 0.3, 1.0, 3.0), "Adam": (0.001, 0.003, 0.01, 0.03, 0.1)}
KINDS = ("as they are", "less the mean of each channel", "less the mean image")
LAYERS = ("1", "2", "3", "all")
SHARES = {"eight_tenths": 0.8, "half": 0.5, "tenth": 0.1}  # of a network's own loss at the start
WAYS = ("batches", "norm", "optimizer", "layer", "images")  # columns that tell trainings apart, but for seed and rate
BATCH, EVERY = 100, 5  # images of a mini-batch; steps after which the loss of all images is looked at


def inputs(n: int, stride: int) -> tuple[dict[str, Float[Tensor, "n 3 h w"]], Int[Tensor, " n"]]:
    """Return images of CIFAR-10 as they are, less one mean for each channel, and less the mean of each pixel."""
    x, labels = gnlib.load("cifar10", n, stride=stride)
    side = -(-32 // stride)
    x = x.view(n, 3, side, side).float()
    return dict(zip(KINDS, (x, x - x.mean((0, 2, 3), keepdim=True), x - x.mean(0)), strict=True)), labels


def network(seed: int, norm: bool, side: int) -> nn.Sequential:
    """Return two convolutions and a linear layer, drawn in double precision, with or without group norms."""
    double = {"dtype": torch.float64}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        parts: list[nn.Module] = []
        for before, after in ((3, 8), (8, 16)):
            parts.append(nn.Conv2d(before, after, 3, stride=2, padding=1, **double))
            parts += [nn.GroupNorm(4, after, **double), nn.ReLU()] if norm else [nn.ReLU()]
            side = -(-side // 2)
        return nn.Sequential(*parts, nn.Flatten(), nn.Linear(16 * side**2, 10, **double)).float()


def weighted(net: nn.Sequential) -> list[nn.Module]:
    """Return the layers whose weights are matrices: two convolutions and the last layer."""
    return [part for part in net if isinstance(part, nn.Conv2d | nn.Linear)]


def layer_kappas(net: nn.Sequential, x: Float[Tensor, "n 3 h w"]) -> list[float]:
    """Return the condition number of the Gauss-Newton block of each layer, weights and bias, for the squared error."""
    net, found = net.double(), []
    for layer in weighted(net):
        net.requires_grad_(False)
        layer.requires_grad_()
        found.append(float(gnlib.condition_number(net, x.double())))
    return found


def steps_to(
    net: nn.Sequential, x: Tensor, labels: Tensor, layer: str, optimizer: str, rate: float, limit: int, **batches: int
) -> tuple[float, list[int | None]]:
    """Return the loss at the start, and the steps to each of `SHARES` of it, None for those that are not reached.

    One layer alone is trained, to half of the loss, or all, to a tenth, with all images in each step. With `batches`,
    which are those of :func:`gnbook.shared.training.train`, the loss of all images goes down to half.
    """
    net.requires_grad_(layer == "all")
    if layer != "all":
        weighted(net)[int(layer) - 1].requires_grad_()
    goals, loss = list(SHARES.values()), nn.functional.cross_entropy
    start = loss(net(x), labels).item()
    until = goals[-1 if layer == "all" and not batches else 1] * start
    kind = torch.optim.Adam if optimizer == "Adam" else torch.optim.SGD
    found = train(net, x, labels, rate=rate, most=limit, until=until, loss=loss, optimizer=kind, **batches)
    steps = [found.steps_to(goal * start) for goal in goals]
    return start, [int(step) if step < float("inf") else None for step in steps]


def trainings(seed: int, counts: Sequence[int] = (100, 1000), stride: int = 2, limit: int = 1000) -> Iterator[dict]:
    """Yield κ on the first 40 images, and the steps at each rate, for each way of training and each layer.

    The first of `counts` is the number of images without mini-batches, which are of the second and train all layers.
    """
    side = -(-32 // stride)
    for count, in_batches in zip(counts, (False, True), strict=True):
        kinds, labels = inputs(count, stride)
        for norm, (name, x) in product((False, True), kinds.items()):
            kappas: list[float | None] = [None]
            if not in_batches:
                found = layer_kappas(network(seed, norm, side), x[:40])
                kappas = [*(float(f"{kappa:.4g}") for kappa in found), None]
            for optimizer, (layer, kappa) in product(RATES, zip(LAYERS[-len(kappas) :], kappas, strict=True)):
                for rate in RATES[optimizer]:
                    batches = {"batch_size": BATCH, "every": EVERY, "seed": seed} if in_batches else {}
                    net = network(seed, norm, side)
                    first, steps = steps_to(net, x, labels, layer, optimizer, rate, limit, **batches)
                    of = {"batches": in_batches, "norm": norm, "seed": seed, "images": name, "optimizer": optimizer}
                    of |= {"layer": layer, "kappa": kappa, "rate": rate, "start": float(f"{first:.4g}")}
                    yield of | dict(zip(SHARES, steps, strict=True))


def fewest(rows: Sequence[Row], share: str, rates: Sequence[float] | None = None) -> dict[tuple, list[float]]:
    """Return the fewest steps over some rates, infinite where none arrives: from `WAYS` to a number for each seed."""
    best: dict[tuple, dict] = {}
    for row in sorted(rows, key=itemgetter("seed")):
        if rates is None or row["rate"] in rates:
            key = tuple(str(row[name]) if name == "layer" else row[name] for name in WAYS)
            of, took = best.setdefault(key, {}), row[share]
            of[row["seed"]] = min(of.get(row["seed"], float("inf")), float("inf") if took is None else took)
    return {key: list(of.values()) for key, of in best.items()}
