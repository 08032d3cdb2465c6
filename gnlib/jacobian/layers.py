r"""Functions of torch that are linear in a weight and a bias, as products of features with the weight.

At position t (of an image, of a sentence) and for group h of the channels, such a function returns
:math:`z_{th} = W_h x_{th} + b_h` with features x. An output whose gradient by z is g has the gradient
:math:`\sum_t g_{th} x_{th}^\top` by the weight, and :math:`\sum_t g_{th}` by the bias.
"""

import inspect
import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from types import FunctionType
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional

Parameter = Tensor | None


class Call(NamedTuple):
    """A call of a function that is linear in its weight and its bias.

    Attributes
    ----------
    weight, bias
        its arguments
    run
        the function of these alone
    inputs
        returns the tensor that the features are made of
    features
        makes the features of b samples of their inputs; an integer stands for a unit vector with a 1 there, or for
        zero if it is negative
    channels
        arranges values of b samples, `(b, *z.shape)`, like the features
    by_feature
        whether the weight is stored with the axis of the features first
    """

    weight: Parameter
    bias: Parameter
    run: Callable[[Parameter, Parameter], Tensor]
    inputs: Callable[[], Tensor]
    features: Callable[[Tensor], Shaped[Tensor, "b t h i"]]
    channels: Callable[[Tensor], Float[Tensor, "b t h o"]]
    by_feature: bool = False


def _linear(input: Tensor, weight: Tensor, bias: Parameter = None) -> Call:
    return Call(weight, bias, partial(functional.linear, input), lambda: input, _last, _last)


def _embedding(input: Tensor, weight: Tensor, padding_idx: int | None, **options: Any) -> Call | None:
    if options["max_norm"] is not None:  # rows are changed
        return None

    def run(weight: Parameter, bias: Parameter) -> Tensor:
        return functional.embedding(input, weight)  # type: ignore[arg-type]

    def indices() -> Tensor:  # a row of padding has no gradient
        return input if padding_idx is None else torch.where(input == padding_idx % len(weight), -1, input)

    return Call(weight, None, run, indices, lambda x: x.reshape(len(x), -1, 1, 1), _last, by_feature=True)


def _convolution(function: Callable[..., Tensor]) -> Callable[..., Call]:
    def call(
        input: Tensor,
        weight: Tensor,
        bias: Parameter = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Call:
        sizes, channel = weight.shape[2:], 1 - weight.ndim
        reach = [d * (size - 1) for d, size in zip(_each(dilation, sizes), sizes, strict=True)]
        if padding == "same":
            around = [(r // 2, r - r // 2) for r in reach]
        else:
            around = [(p, p) for p in _each(0 if padding == "valid" else padding, sizes)]

        def patches(x: Tensor) -> Tensor:
            x = functional.pad(x, [*chain.from_iterable(reversed(around))])
            first = x.ndim - len(sizes)
            steps = zip(reach, _each(stride, sizes), _each(dilation, sizes), strict=True)
            for axis, (r, step, d) in enumerate(steps, first):
                x = x.unfold(axis, r + 1, step)[..., ::d]
            return x.movedim(first - 1, channel).reshape(len(x), -1, groups, weight[0].numel())

        def channels(z: Tensor) -> Tensor:
            z = z.movedim(channel, 1).reshape(len(z), groups, len(weight) // groups, -1)  # positions lie together
            return z.permute(0, 3, 1, 2)

        def run(weight: Parameter, bias: Parameter) -> Tensor:
            return function(input, weight, bias, stride, padding, dilation, groups)

        return Call(weight, bias, run, lambda: input, patches, channels)

    return call


def _normalization(function: Callable[..., Tensor]) -> Callable[..., Call]:
    """Scale and shift act on each channel by itself, whose feature is the normalised value."""

    def call(**options: Any) -> Call:
        parameters = {name: options.pop(name) for name in ("weight", "bias") if name in options}
        shape = options.get("normalized_shape")

        def run(weight: Parameter, bias: Parameter) -> Tensor:
            given = {"weight": weight, "bias": bias}
            return function(**options, **{name: given[name] for name in parameters})

        def normalised() -> Tensor:
            own = options.get("training") or options.get("use_input_stats")
            statistics = {"running_mean": None, "running_var": None} if own else {}  # or they would move twice
            return function(**{**options, **statistics})

        def channels(z: Tensor) -> Tensor:
            if shape:
                return z.reshape(len(z), -1, math.prod(shape), 1)
            return z.movedim(2, 1).reshape(len(z), z.shape[2], -1).mT[..., None]

        weight, bias = parameters["weight"], parameters.get("bias")
        return Call(weight, bias, run, normalised, channels, channels)

    return call


LAYERS: dict[Callable[..., Any], Callable[..., Call | None]] = {
    functional.linear: _linear,
    functional.embedding: _embedding,
    **{f: _convolution(f) for f in (torch.conv1d, torch.conv2d, torch.conv3d)},
    **{f: _normalization(f) for f in (functional.layer_norm, functional.rms_norm, functional.group_norm)},
    **{f: _normalization(f) for f in (functional.instance_norm, functional.batch_norm)},
}


def call_of(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Call | None:
    """Return a call of a function as that of a layer, if it is one."""
    layer = LAYERS.get(function)
    if layer is not None and isinstance(function, FunctionType):
        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.apply_defaults()
        args, kwargs = (), bound.arguments
    return layer and layer(*args, **kwargs)


def _each(value: Any, sizes: Sequence[int]) -> list[int]:
    """Return one number for each axis of a filter."""
    values = [value] if isinstance(value, int) else [*value]
    return values * len(sizes) if len(values) == 1 else values


def _last(z: Tensor) -> Tensor:
    """Count all axes but the last as positions."""
    return z.reshape(len(z), -1, 1, z.shape[-1])
