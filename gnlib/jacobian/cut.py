"""Numbers that tell the derivatives of each sample by all layers, from graphs that are cut at the layers.

The gradient by the weight of a layer is a sum of products of the layer's features and of gradients by its results. So
it is enough to compare these two, for each sample by a weighted sum of the entries: no gradient of the size of the
weights is made, and that of one sample does not hide behind those of others.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import agree, agree_in_parts, largest_entry
from gnlib.jacobian.network import Factors, Function
from gnlib.jacobian.record import Leaves, Structure, call_recorded


class CutPullback(NamedTuple):
    """Outputs, numbers of each sample for its features and for its gradients, and gradients of other parameters."""

    outputs: Float[Tensor, "n k"]
    features: Float[Tensor, "n c"]
    gradients: Float[Tensor, "n c"]
    others: list[Tensor]

    def agrees_with(self, other: "CutPullback") -> bool:
        """Whether all of it is the same."""
        pairs = [(self.outputs, other.outputs), (self.features, other.features), (self.gradients, other.gradients)]
        sizes = [*map(largest_entry, other.others)]
        same = all(agree(mine, its) for mine, its in pairs if its.numel())
        return same and (not sizes or agree_in_parts(self.others, other.others, sizes))


class _Probes(Leaves):
    """Directions in the results of calls, each times a number for each sample, made when they are asked for."""

    def __init__(self, scales: Float[Tensor, "n c"], structure: Structure, others: Factors) -> None:
        super().__init__()
        self.update(others)
        self._scales, self._structure = scales, structure
        self._calls = {use.call for uses in structure.uses.values() for use in uses}

    def __contains__(self, key: object) -> bool:
        return key in self._calls

    def __missing__(self, call: int | str) -> Tensor:
        assert isinstance(call, int)
        shape, axis = self._structure.forms[call].shape, _axis_of_samples(self._structure.forms[call].shape)
        direction = _entries(shape.numel(), self._scales.device).view(shape)
        if shape[axis] == 1:
            return self._scales[:, call].view(-1, *(1 for _ in shape[axis + 1 :])) * direction
        return (self._scales[:, call].view(-1, *(1 for _ in shape)) * direction).flatten(0, 1)


def _axis_of_samples(shape: torch.Size) -> int:
    """Return the axis of the one sample of a result, the second if positions come first; else they share the first.

    Where it is another one, results do not have the shapes of probes, or samples do not agree with themselves, and
    gradients by the weights are compared: so it is in attention of torch, which flattens positions before samples.
    """
    return 1 if len(shape) > 2 and shape[0] != 1 and shape[1] == 1 else 0


def _entries(size: int, device: torch.device) -> Float[Tensor, " q"]:
    """Return numbers between -1 and 1 without a pattern, the same at each call."""
    return torch.arange(1, size + 1, dtype=torch.float64, device=device).square().sin()


def pull_cut(
    function: Function,
    structure: Structure,
    parameters: Factors,
    x: Tensor,
    weights: Float[Tensor, "n k"],
    *,
    one_by_one: bool,
) -> CutPullback:
    """Return what tells the derivatives of weighted outputs, of samples called together or each by itself."""
    with torch.enable_grad():
        leaves = {name: parameters[name].detach().requires_grad_() for name in function.parameters}
        others = {name: leaf for name, leaf in leaves.items() if name not in structure.uses}
        moved = replace(function, parameters=leaves, frozen={name: parameters[name] for name in function.frozen})

        def call(x: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
            recorder, y = call_recorded(moved, structure.uses, _Probes(scales, structure, others), x)
            if recorder.uses != structure.uses or not recorder.intact:
                raise RuntimeError("The network does not call its layers as it did before.")
            features = [x.new_zeros(len(x), 0, dtype=torch.float64)]
            for number, inputs in recorder.inputs.items():
                axis = _axis_of_samples(structure.forms[number].shape)
                each = inputs.double().movedim(axis, 0).reshape(len(x), -1)
                features.append((each @ _entries(each.shape[1], x.device))[:, None])
            return y, torch.cat(features, 1)

        scales = torch.zeros(len(x), len(structure.forms), dtype=torch.float64, device=x.device, requires_grad=True)
        if one_by_one:
            y, features = torch.vmap(lambda x, s: tuple(each[0] for each in call(x[None], s[None])))(x, scales)
        else:
            y, features = call(x, scales)
        wanted = [scales, *others.values(), *(leaf for name, leaf in leaves.items() if name not in others)]
        found = torch.autograd.grad(y, wanted, weights, allow_unused=True)
    of_scales, *of_others = found[: 1 + len(others)]
    if any(g is not None for g in found[1 + len(others) :]):
        raise RuntimeError("The network uses weights elsewhere than in its layers.")
    of_others = [torch.zeros_like(p) if g is None else g for p, g in zip(others.values(), of_others, strict=True)]
    return CutPullback(y.detach(), features, torch.zeros_like(scales) if of_scales is None else of_scales, of_others)
