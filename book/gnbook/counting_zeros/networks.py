"""One hidden layer of ReLUs, trained, and what each rule says of its spectrum."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gnbook.counting_zeros.rules import EPSILON, by_rules, count, free_directions, spectrum
from gnbook.shared.epochs import train_epochs
from gnbook.shared.networks import FullyConnected, xavier_weights
from gnbook.shared.training import one_hot

Rows = list[dict[str, str | int | float]]


def trained(
    units: int,
    images: Float[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    *,
    epochs: int,
    seed: int = 0,
    every: int | None = None,
    measure: Callable[[nn.Module], Mapping[str, int | float]] | None = None,
) -> tuple[FullyConnected, Rows]:
    """Return a network trained in batches of 64, and what was measured: at the ends only, without `every`."""
    weights = xavier_weights([images.shape[1], units, 10], generator=torch.Generator().manual_seed(seed))
    net = FullyConnected(weights, relu=True, dtype=torch.float64).to(images.device)
    if not epochs:
        return net, []
    optimizer = partial(torch.optim.SGD, lr=0.3 if units <= 20 else 0.5)
    options = dict(batch_size=64, every=every or epochs, loss=nn.functional.mse_loss, measure=measure)
    return net, train_epochs([net], images, one_hot(labels, 10), optimizer, seeds=[seed], epochs=epochs, **options)


def by_precision(net: FullyConnected, images: Float[Tensor, "n d"]) -> dict[str, int | float]:
    """Return rank and condition number by the relative threshold of each precision, from one spectrum in double."""
    values, row = spectrum(net.weights(), images), {}
    for precision, eps in EPSILON.items():
        row[f"rank_{precision}"] = rank = count(values, len(values) * eps * values[0])
        row[f"kappa_{precision}"] = (values[0] / values[rank - 1]).item()
    return row


def rows_of(
    networks: Mapping[int, FullyConnected],
    ways: Mapping[int, Mapping[str, Float[Tensor, " q"]]],
    images: Float[Tensor, "n d"],
    absolute: Sequence[float],
) -> tuple[Rows, Rows]:
    """Return rows of figure 9 of the paper, by epoch: points of the spectra, and the answer of each rule."""
    points, answers = [], []
    for epoch, spectra in ways.items():
        free, size = free_directions(networks[epoch].weights(), images), len(spectra["float64"])
        which = {"epoch": epoch, "directions": free}
        enough_to_draw = {*np.linspace(1, size, 201).round().astype(int).tolist(), free, min(free + 1, size)}
        for i in sorted(enough_to_draw):
            heights = {name: (values[i - 1] / values[0]).item() for name, values in spectra.items()}
            points.append({"figure": "9", **which, "rank": i, **heights})
        answers += [{"figure": "9 rules", **which, **row} for row in by_rules(spectra, len(images), absolute)]
    return points, answers
