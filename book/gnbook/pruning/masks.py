"""Pruning by magnitude, layer by layer, with masks that last through training.

A mask is a parametrisation of the weight tensor: whoever reads the weight gets the product of the two, whether the
layer is called or not. (Those of `torch.nn.utils.prune` renew the product when the layer is called. A `ParameterList`,
or the layer `out_proj` of `torch.nn.MultiheadAttention`, never is, and its weights would stay what they were at first.)
"""

from collections.abc import Mapping

import torch
from jaxtyping import Bool
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

LAYERS = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.MultiheadAttention | nn.ParameterList


class Mask(nn.Module):
    """The entries of a weight tensor that are kept; the others are zero, and so are their gradients."""

    def __init__(self, kept: Bool[Tensor, "*shape"]) -> None:
        super().__init__()
        self.register_buffer("kept", kept)

    def forward(self, weight: Tensor) -> Tensor:
        """Return the weight tensor with zeros."""
        return weight * self.kept


def magnitude_masks(module: nn.Module, fraction: float) -> dict[str, Bool[Tensor, "*shape"]]:
    """Return masks that take away this fraction of each weight tensor, the entries that are smallest in absolute value.

    Pruned are the matrices and filters: all tensors with two axes or more of linear and convolutional layers, of
    attention, and of a `ParameterList`. Biases and normalisation stay whole, and so do parameters of modules of your
    own, such as an embedding of positions. The number of entries is rounded.
    """
    smallest = prune.L1Unstructured(float(fraction))
    return {
        f"{prefix}.{name}" if prefix else name: smallest.compute_mask(weight.detach(), torch.ones_like(weight)).bool()
        for prefix, owner in module.named_modules()
        if isinstance(owner, LAYERS)
        for name, weight in owner.named_parameters(recurse=False)
        if weight.ndim > 1
    }


def masks_of_every_tensor(module: nn.Module, fraction: float) -> dict[str, Bool[Tensor, "*shape"]]:
    """Return masks that take away this fraction of every parameter, whatever it is: the entries smallest in size.

    This is how the public code behind Zhao 2024 prunes, biases and the scales of normalisation included. At the start
    these are equal, and `torch.topk` decides which are gone. The number of entries is rounded down.

    J. Zhao, S. P. Singh, A. Lucchi (2024), NeurIPS 37, figure 1.
    """
    masks = {}
    for name, parameter in module.named_parameters():
        sizes = parameter.detach().abs().flatten()
        kept = torch.ones_like(sizes, dtype=torch.bool)
        kept[sizes.topk(int(fraction * len(sizes)), largest=False).indices] = False
        masks[name] = kept.view_as(parameter)
    return masks


def apply_masks(module: nn.Module, masks: Mapping[str, Bool[Tensor, "*shape"]]) -> None:
    """Set the other entries of weight tensors to zero, now and in all training that follows.

    Training moves what is kept; optimisers, `torch.func` and :func:`gnlib.condition.condition_number` see the masked
    network. The parameters are kept whole under the names `...parametrizations.<name>.original`, with gradients of
    zero.
    """
    for name, kept in masks.items():
        owner, _, tensor = name.rpartition(".")
        mask = Mask(kept.to(module.get_parameter(name).device))
        parametrize.register_parametrization(module.get_submodule(owner), tensor, mask)
