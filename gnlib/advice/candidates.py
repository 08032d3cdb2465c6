"""Changes that an experienced engineer would think of, each a module in the place of the given one."""

import copy
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnlib.advice.branches import ends_of_branches, smaller
from gnlib.advice.layers import CONVOLUTIONS, Leaf, is_norm, leaves_of, normalisations, saturates, weights, with_bias
from gnlib.advice.wrappers import Affine, Prepared, Scaled, by_feature, by_one_number, is_within, whitened

SETTLED = 0.1  # of their standard deviation: inputs and targets that a map moves by less are left as they are
KINDS = "weights", "branches", "normalisation", "targets", "inputs"  # in the order in which changes are made
TARGETS, WHITEN = "standardise the targets", "whiten the inputs"


@dataclass(frozen=True, eq=False)
class Change:
    """A way to change any module."""

    kind: str  # one of `KINDS`: of each a network takes one change
    what: str  # in words
    apply: Callable[[nn.Module], nn.Module]  # takes a module that it may change, and returns that or one around it


def changed(module: nn.Module, changes: Collection[Change]) -> nn.Module:
    """Return a changed copy: what is within it first, what is around it last.

    Examples
    --------
    >>> import torch
    >>> setting = Setting(torch.nn.Linear(2, 1), [{0: torch.randn(9, 2) + 5}], None, "mse")
    >>> inputs = [change for change in changes_for(setting) if change.kind == "inputs"]
    >>> type(changed(setting.module, inputs[:1])).__name__
    'Prepared'
    """
    module = copy.deepcopy(module)
    for change in sorted(changes, key=lambda change: KINDS.index(change.kind)):
        module = change.apply(module)
    return module


@dataclass(frozen=True, eq=False)
class Setting:
    """A module with the data that changes are made for."""

    module: nn.Module
    batches: list[dict[int | str, Any]]  # of each the arguments, by place or name
    y: Any  # targets of all samples
    loss: Any
    output: Callable[..., Tensor] | None = None  # makes the outputs of what the module returns

    def call(self, module: nn.Module) -> Any:
        """Call a module on the first batch, in its own precision."""
        return called(module, self.batches[0])

    @cached_property
    def leaves(self) -> list[Leaf]:
        """The leaves of the module in the order of their calls."""
        return leaves_of(self.module, self.call)

    @cached_property
    def result(self) -> Any:
        """What the module returns on the first batch."""
        with torch.no_grad():
            return self.call(copy.deepcopy(self.module))

    @property
    def outputs(self) -> Any:
        """What the loss takes of that."""
        return self.result if self.output is None else self.output(self.result)

    @property
    def is_regression(self) -> bool:
        """Whether the targets are numbers, under a squared error, and the module returns one tensor."""
        return self.has_numbers and not self.fixed_targets

    @property
    def has_numbers(self) -> bool:
        """Whether the targets are real numbers."""
        return isinstance(self.y, Tensor) and self.y.is_floating_point() and self.loss != "cross_entropy"

    @property
    def fixed_targets(self) -> str:
        """Why real targets cannot be standardised; empty if they can."""
        if self.loss != "mse" and not isinstance(self.loss, nn.MSELoss):
            name = getattr(self.loss, "__name__", type(self.loss).__name__)
            return f"the loss is {name}, and only of a squared error it is known that outputs scale as targets do"
        if not isinstance(self.result, Tensor):
            return f"the module returns a {type(self.result).__name__}, and only one tensor can be scaled"
        return ""

    @cached_property
    def inputs(self) -> dict[int | str, Float[Tensor, " n *d"]]:
        """Inputs that can be standardised, on all samples."""
        parts = {key: [batch[key] for batch in self.batches] for key in self.batches[0] if key not in self.fixed_inputs}
        return {key: torch.cat([part.detach().double() for part in of]) for key, of in parts.items()}

    @cached_property
    def fixed_inputs(self) -> dict[int | str, str]:
        """Inputs that are left alone, by place or name, and why."""
        found = {key: self._why(key) for key in self.batches[0]}
        return {key: why for key, why in found.items() if why}

    def _why(self, key: int | str) -> str:
        parts = [batch[key] for batch in self.batches]
        if not all(isinstance(part, Tensor) for part in parts):
            return "no tensor"
        if not all(part.is_floating_point() for part in parts):
            return "no real numbers: classes, tokens, lengths or a mask"
        if parts[0].ndim < 2:
            return "one number for each sample, such as a length"
        if any(part.shape[1:] != parts[0].shape[1:] for part in parts):
            return "of another shape from batch to batch"
        values = torch.cat([part.flatten() for part in parts])
        if len(self.batches[0]) > 1 and bool(((values == 0) | (values == 1) | values.isinf()).all()):
            return "zeros and ones alone, as in a mask"
        return "" if values.isfinite().all() else "not finite"

    @property
    def has_normalisation(self) -> bool:
        """Whether it is normalised anywhere."""
        return any(is_norm(leaf.module) for leaf in self.leaves)

    @property
    def usual_weights(self) -> tuple[str, ...]:
        """What weights are drawn unasked: by the activations, the normalisations, and whether it is recurrent."""
        if any(isinstance(leaf.module, nn.RNNBase) for leaf in self.leaves):
            return ("orthogonal weights",)
        return ("Xavier's weights",) if self.has_normalisation or saturates(self.leaves) else ("Kaiming's weights",)

    def left_out(self) -> dict[str, str]:
        """Return what is not tried by its nature, and why."""
        several = len(self.batches[0]) > 1
        names = {key: f"standardise input {key!r}" if several else "standardise the inputs" for key in self.batches[0]}
        found = {names[key]: why for key, why in self.fixed_inputs.items()}
        if self.has_numbers and self.fixed_targets:
            found[TARGETS] = self.fixed_targets
        if self.inputs and not self.can_be_whitened:
            found[WHITEN] = "that takes more samples than features, along one axis"
        if not [*normalisations(self.leaves)]:
            found["a normalisation"] = "no hidden linear map or convolution is without one"
        if any(isinstance(leaf.module, nn.RNNBase) for leaf in self.leaves):
            found["Kaiming's and Xavier's weights"] = "recurrent layers take orthogonal ones"
        return found

    @property
    def can_be_whitened(self) -> bool:
        """Whether all inputs have one axis of features, and more samples than these."""
        return all(x.ndim == 2 and len(x) > x.shape[1] > 1 for x in self.inputs.values())


def called(module: nn.Module, held: Mapping[int | str, Any]) -> Any:
    """Call a module with arguments by place or name, in its own precision.

    Examples
    --------
    >>> import torch
    >>> called(torch.nn.Bilinear(2, 3, 1), {0: torch.ones(4, 2), "input2": torch.ones(4, 3)}).shape
    torch.Size([4, 1])
    """
    dtype = next(module.parameters()).dtype
    own = {key: in_precision(value, dtype) for key, value in held.items()}
    places = [value for key, value in own.items() if isinstance(key, int)]
    return module(*places, **{key: value for key, value in own.items() if isinstance(key, str)})


def arguments_of(batch: Any) -> dict[int | str, Any]:
    """Return the arguments of a call, by place or name.

    Examples
    --------
    >>> arguments_of((1, 2)), arguments_of({"x": 1})
    ({0: 1, 1: 2}, {'x': 1})
    """
    if isinstance(batch, Mapping):
        return dict(batch)
    return dict(enumerate(batch if isinstance(batch, tuple) else (batch,)))


def in_precision(value: Any, dtype: torch.dtype) -> Any:
    """Return a tensor of real numbers in a precision, and anything else as it is.

    Examples
    --------
    >>> import torch
    >>> in_precision(torch.ones(1), torch.float64).dtype, in_precision(3, torch.float64)
    (torch.float64, 3)
    """
    return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value


def changes_for(setting: Setting) -> Iterator[Change]:
    """Yield the changes that there is a reason to try.

    Examples
    --------
    >>> import torch
    >>> setting = Setting(torch.nn.Linear(1, 1), [{0: torch.tensor([[9.0], [11.0]])}], None, "mse")
    >>> [change.what for change in changes_for(setting) if change.kind == "inputs"][0]
    'standardise the inputs, each feature by itself'
    """
    yield from _of_targets(setting)
    yield from _of_inputs(setting)
    branches = smaller(setting.module, ends_of_branches(setting.module, setting.call))
    found = {"normalisation": normalisations(setting.leaves), "weights": weights(setting.leaves), "branches": branches}
    for kind, within in found.items():
        yield from (Change(kind, *change) for change in within)


def _of_inputs(setting: Setting) -> Iterator[Change]:
    """Standardise real inputs, by feature or channel or by one number, or their means alone; or whiten them."""
    inputs = setting.inputs
    if not inputs or is_within(setting.module, Prepared):
        return
    axes = {key: _axis_of_features(setting, x) for key, x in inputs.items()}
    one = "channel" if any(axis != inputs[key].ndim - 1 for key, axis in axes.items()) else "feature"
    ways: dict[str, Callable[[Tensor, int], Affine]] = {
        f"standardise the inputs, each {one} by itself": by_feature,
        "standardise the inputs by one number": lambda x, _: by_one_number(x),
        f"centre the inputs, each {one} by itself": partial(by_feature, scaled=False),
    }
    if setting.can_be_whitened:
        ways[WHITEN] = lambda x, _: whitened(x)
    for what, way in ways.items():
        maps = {key: way(x, axes[key]) for key, x in inputs.items()}
        if any(
            (each(x) - x).square().mean().sqrt() > SETTLED * x.std(correction=0)
            for (key, x), each in zip(inputs.items(), maps.values(), strict=True)
        ):
            yield Change("inputs", what, partial(Prepared, maps=maps))


def _axis_of_features(setting: Setting, x: Float[Tensor, " n *d"]) -> int:
    """Return the axis of the channels where the first layer is a convolution, or samples are images; else the last."""
    first = next((leaf.module for leaf in setting.leaves if [*leaf.module.parameters(recurse=False)]), None)
    return 1 if x.ndim > 3 or (x.ndim == 3 and isinstance(first, CONVOLUTIONS)) else x.ndim - 1


def _of_targets(setting: Setting) -> Iterator[Change]:
    """Let the outputs be standardised targets, or begin with the log odds of the classes."""
    y, f = setting.y, setting.result
    if setting.is_regression and not is_within(setting.module, Scaled):
        own = y.ndim == 2 and y.shape[1:] == f.shape[1:]  # each output has a scale of its own
        y = y.detach().double()
        affine = by_feature(y, 1) if own else by_one_number(y)
        settled = (affine(y) - y).square().mean().sqrt() <= SETTLED * y.std(correction=0)
        if not own:
            affine = Affine(affine.mean.flatten()[0], affine.scale.flatten()[0])
        if not settled:
            yield Change("targets", TARGETS, partial(Scaled, mean=affine.mean, scale=1 / affine.scale))
    head = next((leaf for leaf in reversed(setting.leaves) if isinstance(leaf.module, nn.Linear)), None)
    of_classes = isinstance(y, Tensor) and y.ndim == 1 and not y.is_floating_point() and isinstance(f, Tensor)
    if head is None or not of_classes or f.ndim != 2 or head.module.bias is None:
        return
    k = f.shape[1]
    if len(head.module.bias) == k:
        odds = torch.log((torch.bincount(y.long(), minlength=k) + 1.0) / (len(y) + k))
        if odds.max() - odds.min() > math.log(2):
            what = "begin with a bias of the log odds of the classes"
            yield Change("targets", what, partial(with_bias, name=head.name, value=odds))
