"""What the page on pruning and that of its further experiments run on a few small images."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

import gnlib
from gnbook.pruning import experiment, jacobians, recipes
from gnbook.pruning.masks import apply_masks, magnitude_masks
from gnbook.shared.epochs import train_epochs
from gnbook.shared.networks import FullyConnected
from gnbook.shared.training import Loss, one_hot

CLASSES = 10


def images(n: int, stride: int, device: str = "cpu") -> tuple[Float[Tensor, "n 3 s s"], Float[Tensor, "n k"]]:
    """Return images of CIFAR-10, standardised channel by channel, and their classes, one-hot."""
    x, labels = gnlib.load("cifar10", n, stride=stride)
    x = x.unflatten(1, (3, -(-32 // stride), -1))
    return recipes.standardised(x, x).to(device), one_hot(labels, CLASSES).to(device)


def mlp(seed: int, side: int, hidden: Sequence[int], fraction: float | None = None, device: str = "cpu") -> nn.Module:
    """Return a fully connected network of ReLUs without biases, in double precision, perhaps pruned by magnitude."""
    torch.manual_seed(seed)
    weights = [nn.Linear(a, b).weight for a, b in pairwise([3 * side**2, *hidden, CLASSES])]
    network = nn.Sequential(nn.Flatten(), FullyConnected(weights, relu=True, dtype=torch.float64)).to(device)
    if fraction is not None:
        apply_masks(network, magnitude_masks(network, fraction))
    return network


def losses_at(
    rate: float,
    kinds: Sequence[tuple[float, int]],
    x: Float[Tensor, "n 3 s s"],
    targets: Float[Tensor, "n k"],
    *,
    hidden: Sequence[int],
    epochs: int,
    batch_size: int,
    loss: Loss = nn.functional.mse_loss,
) -> list[float]:
    """Return the losses of MLPs after SGD at one rate, of one for each kind: the fraction pruned and the seed."""
    networks = [mlp(seed, x.shape[-1], hidden, fraction, str(x.device)) for fraction, seed in kinds]
    how = {"epochs": epochs, "every": epochs, "batch_size": batch_size, "loss": loss}
    rows = train_epochs(
        networks, x, targets, partial(torch.optim.SGD, lr=rate), seeds=[seed for _, seed in kinds], **how
    )
    return [row["loss"] for row in rows[-len(kinds) :]]


def spectrum_of_resnet20(
    x: Float[Tensor, "n 3 s s"], channels: int, pruning: str, fraction: float
) -> Float[np.ndarray, " m"]:
    """Return the eigenvalues of a ResNet20 before training, by the columns that are kept, statistics of the batch.

    They go from the largest to the smallest. Those that double precision does not tell from zero are not a number.
    """
    how = recipes.recipe("ResNet20", x.shape[-1], recipes.FULL | {"channels": channels})
    network, masks = experiment.pruned(how, pruning, fraction, seed=0, device=str(x.device))
    gram = jacobians.with_statistics_of_batches(network, masks, [x], torch.float64)["kept"]
    values = torch.linalg.eigvalsh(gram).flip(0).cpu().numpy()
    return np.where(values > len(values) * 2**-52 * values[0], values, np.nan)
