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
    own, such as an embedding of positions.

    Parameters
    ----------
    module
        a network without masks; it is left as it is
    fraction
        from 0 on and below 1; the number of entries is rounded

    Returns
    -------
    For each weight tensor, by its name in the module, what is kept.

    Raises
    ------
    TypeError
        Something that is not a module.
    ValueError
        A fraction out of range, one that leaves nothing of a layer, a module with masks or other parametrisations, or
        one without such weights.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module is of type {type(module).__name__}; pass a torch.nn.Module.")
    _check_fraction(fraction)
    _without_masks(module)
    masks = {}
    for name, weight in _weights(module).items():
        mask = prune.L1Unstructured(float(fraction)).compute_mask(weight.detach(), torch.ones_like(weight)).bool()
        if not mask.any():
            raise ValueError(
                f"A fraction of {fraction} of the {weight.numel()} weights of {name} is all of them; take a smaller "
                "fraction, or a larger layer."
            )
        masks[name] = mask
    if not masks:
        raise ValueError("module has no linear or convolutional layers, whose weights could be pruned.")
    return masks


def masks_of_every_tensor(module: nn.Module, fraction: float) -> dict[str, Bool[Tensor, "*shape"]]:
    """Return masks that take away this fraction of every parameter, whatever it is: the entries smallest in size.

    This is how the public code behind Zhao 2024 prunes, biases and the scales of normalisation included. At the start
    these are equal, and `torch.topk` decides which are gone. The number of entries is rounded down.

    Parameters
    ----------
    module
        a network without masks; it is left as it is
    fraction
        from 0 on and below 1

    Returns
    -------
    For each parameter, by its name in the module, what is kept.

    Raises
    ------
    ValueError
        A fraction out of range.

    References
    ----------
    J. Zhao, S. P. Singh, A. Lucchi (2024), NeurIPS 37, figure 1.

    Examples
    --------
    >>> import torch
    >>> kept = masks_of_every_tensor(torch.nn.BatchNorm1d(5), 0.4)
    >>> {name: int(mask.sum()) for name, mask in kept.items()}
    {'weight': 3, 'bias': 3}
    """
    _check_fraction(fraction)
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

    Parameters
    ----------
    module
        changed in place
    masks
        for the name of a parameter: what is kept of it, a Boolean tensor of its shape

    Raises
    ------
    TypeError
        A mask that is not Boolean.
    ValueError
        A mask for no parameter, of another shape or with nothing to keep, or a module with masks or other
        parametrisations. The module is as it was.
    """
    _without_masks(module)
    parameters = dict(module.named_parameters())
    for name, kept in masks.items():
        if name not in parameters:
            raise ValueError(f"There is a mask for {name!r}, but the parameters are {', '.join(parameters)}.")
        if not isinstance(kept, Tensor) or kept.dtype != torch.bool:
            raise TypeError(f"The mask of {name} must be a Boolean tensor, true where an entry is kept.")
        shape = tuple(parameters[name].shape)
        if tuple(kept.shape) != shape:
            raise ValueError(f"The mask of {name} has shape {tuple(kept.shape)}; that of the weights is {shape}.")
        if not kept.any():
            raise ValueError(f"The mask of {name} keeps nothing; a layer without weights passes nothing on.")
    for name, kept in masks.items():
        owner, _, tensor = name.rpartition(".")
        mask = Mask(kept.to(parameters[name].device))
        parametrize.register_parametrization(module.get_submodule(owner), tensor, mask)


def _check_fraction(fraction: float) -> None:
    if not 0 <= fraction < 1:
        raise ValueError(f"fraction is {fraction}; a number from 0 on and below 1 was expected (0.2 prunes 20 %).")


def _weights(module: nn.Module) -> dict[str, Tensor]:
    return {
        f"{prefix}.{name}" if prefix else name: weight
        for prefix, owner in module.named_modules()
        if isinstance(owner, LAYERS)
        for name, weight in owner.named_parameters(recurse=False)
        if weight.ndim > 1
    }


def _without_masks(module: nn.Module) -> None:
    for name, part in module.named_modules():
        if parametrize.is_parametrized(part):
            raise ValueError(
                f"The weights of {name or 'module'} have a mask or another parametrisation already; prune a fresh copy "
                "of the network."
            )
