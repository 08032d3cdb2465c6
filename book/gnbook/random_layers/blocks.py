"""A small ResNet20: its residual blocks as matrices, with their skips and without."""

import copy
import math
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

import gnlib
from gnbook.random_layers import bounds
from gnbook.random_layers import matrices as rm
from gnbook.shared.epochs import train_epochs
from gnbook.shared.networks import ResidualNetwork
from gnbook.shared.training import one_hot

KINDS = ("without skips", "usual start", "start at zero")


class Nothing(nn.Module):
    """In place of a skip."""

    def forward(self, z: Tensor) -> Tensor:
        """Return zeros."""
        return torch.zeros_like(z)


def load(images: int, stride: int, device: str | torch.device = "cpu") -> tuple[Float[Tensor, "n 3 h w"], Tensor]:
    """Return images of CIFAR-10, every so many pixels of them, standardised by channel, and their labels."""
    x, labels = gnlib.load("cifar10", images, stride=stride)
    side = -(-32 // stride)  # as a slice leaves them
    x = x.view(images, 3, side, side)
    return ((x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), keepdim=True)).to(device), labels.to(device)


def fresh(kind: str, seed: int, channels: int, device: str | torch.device = "cpu") -> ResidualNetwork:
    """Return a ResNet20 before training, one of `KINDS`: from zero, the last scale of each branch is zero."""
    torch.manual_seed(seed)
    net = ResidualNetwork(3, channels).double().to(device)
    for layer in net.layers:
        if isinstance(getattr(layer, "skip", None), nn.Identity):  # other blocks change the size of the image
            if kind == "start at zero":
                nn.init.zeros_(layer.branch[-1].weight)
            if kind == "without skips":
                layer.skip = Nothing()
    return net


def trained(
    kind: str, seed: int, x: Float[Tensor, "n 3 h w"], labels: Tensor, *, channels: int, epochs: int
) -> tuple[ResidualNetwork, list[float]]:
    """Train by SGD with momentum on squared error; return the network and its loss after each epoch, from 0 on."""
    net = fresh(kind, seed, channels, x.device)
    optimizer = partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=1e-4)
    how = {"seeds": [seed], "epochs": epochs, "batch_size": 20, "loss": nn.functional.mse_loss}
    rows = train_epochs([net], x, one_hot(labels, 10), optimizer, **how)
    return net, [row["loss"] for row in rows]


def with_statistics_of(net: ResidualNetwork, x: Float[Tensor, "n 3 h w"]) -> ResidualNetwork:
    """Return a copy whose batch normalisation is fixed at the mean and variance of all these images."""
    net = copy.deepcopy(net)
    torch.optim.swa_utils.update_bn([x], net.train())
    return net.eval()


def matrix(affine: nn.Module, shape: torch.Size) -> Float[Tensor, "out in"]:
    """Return the matrix of an affine map of images of that shape."""
    (weight, *_) = affine.parameters()
    basis = torch.eye(math.prod(shape), dtype=weight.dtype, device=weight.device).view(-1, *shape)
    return (affine(basis) - affine(torch.zeros_like(basis[:1]))).flatten(1).mT


def ratio(singular: Float[Tensor, " n"]) -> tuple[float, int]:
    """Return the largest singular value over the smallest that is not zero, and the number of those that are not."""
    rank = int((singular > 1e-10 * singular[0]).sum())
    return (singular[0] / singular[rank - 1]).item(), rank


@torch.no_grad()
def examine(net: ResidualNetwork, x: Float[Tensor, "n 3 h w"]) -> list[dict[str, float]]:
    """Return a row for each block with a skip, in the region of each of the images.

    "norm", "tau" and "bound" are of its branch there; "inner", "outer" and "all" of its two convolutions, for all
    regions; "iid" is the norm that independent entries would give the first. "skip" and "none" are kappa with the skip
    and without, "relu" and "none relu" the same after the last ReLU; "off", "off inside" and "lost" are shares of units
    before and within the branch that are off, and of directions that the branch loses.
    """
    rows, number = [], 0
    for layer in net.layers:
        if isinstance(getattr(layer, "skip", None), nn.Identity):
            number += 1
            inner, outer = (matrix(part, x.shape[1:]) for part in (layer.branch[:2], layer.branch[3:]))
            before, within, after = (z.flatten(1) > 0 for z in (x, layer.branch[:2](x), layer(x)))
            size, identity = len(inner), torch.eye(len(inner), dtype=inner.dtype, device=inner.device)
            lower, upper = bounds.all_regions_of_branch(inner, outer)
            norms = {name: torch.linalg.matrix_norm(w, 2).item() for name, w in (("inner", inner), ("outer", outer))}
            of_block = {"block": number, "n": size} | norms | {"iid": 2 * size**0.5 * inner.std().item()}
            of_block["all"] = upper / lower if lower > 0 else math.inf
            for image in range(len(x)):
                branch, d = outer @ (within[image][:, None] * inner), before[image]
                known, whole = rm.extremes(branch), (identity + branch)[:, d]
                without, rank = ratio(torch.linalg.svdvals(branch[:, d]))
                of_region = {
                    "norm": known.largest.item(),
                    "tau": known.tau_smallest.item(),
                    "bound": bounds.riedi_lemma_36(known).sharper.item(),
                    "off": 1 - d.double().mean().item(),
                    "off inside": 1 - within[image].double().mean().item(),
                    "skip": ratio(torch.linalg.svdvals(whole))[0],
                    "none": without,
                    "lost": 1 - rank / int(d.sum()),
                    "relu": ratio(torch.linalg.svdvals(whole[after[image]]))[0],
                    "none relu": ratio(torch.linalg.svdvals(branch[:, d][after[image]]))[0],
                }
                rows.append(of_block | of_region)
        x = layer(x)
    return rows
