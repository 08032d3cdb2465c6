"""Record which calls use each parameter: their inputs, and the gradients of outputs by their results."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from types import FunctionType
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from gnlib.checks import REPAIR, as_outputs
from gnlib.jacobian.intercept import Interceptor
from gnlib.jacobian.layers import Call, call_of
from gnlib.jacobian.network import Factors, Function, Network
from gnlib.jacobian.recurrent import steps_of
from gnlib.jacobian.refusals import RANDOM
from gnlib.refused import Refused

PRODUCTS = ("mul", "multiply", "__mul__", "__rmul__")
Leaves = dict[int | str, Tensor]
"""Tensors to differentiate by: probes of calls by their number, parameters by name."""


class Form(NamedTuple):
    """The shape of the result of a call, and how it is arranged, as in :class:`gnlib.jacobian.layers.Call`."""

    shape: torch.Size
    features: Callable[[Tensor], Tensor]
    channels: Callable[[Tensor], Tensor]
    by_feature: bool

    @property
    def size(self) -> tuple[int, ...]:
        """Numbers of positions, groups, and outputs of a group."""
        return tuple(self.channels(torch.empty(1, *self.shape, device="meta")).shape[1:])


class Use(NamedTuple):
    """A use of a parameter: the number of the call, whether as its weight, and the name of the mask on it."""

    call: int
    as_weight: bool
    mask: str | None


class Known(NamedTuple):
    """A tensor that counts as a parameter: itself, or its product with a mask."""

    tensor: Tensor
    name: str
    mask: str | None = None


class Structure(NamedTuple):
    """The calls of a network in the order of its forward pass."""

    forms: list[Form]
    uses: dict[str, list[Use]]  # of each parameter that is used by these calls alone
    batched: bool = False  # whether gradients of several outputs of a sample can be taken together, which is faster


class Recorder(Interceptor):
    """Record the calls that use parameters, and cut the graph there.

    In the calls, constants stand in place of the parameters, and probes, which are zero, are added to the results. The
    outputs remain as a function of the probes, and of the parameters that are used in any other way.
    """

    def __init__(self, parameters: Factors, constants: Factors, probes: Leaves) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self.uses: dict[str, list[Use]] = {name: [] for name in parameters}
        self.inputs: dict[int, Tensor] = {}
        self._known = {id(p): Known(p, name) for name, p in parameters.items()}
        self._constants = {id(c): (c, name) for name, c in constants.items()}
        self._versions: list[tuple[Tensor, int]] = []
        self._probes = probes

    @property
    def intact(self) -> bool:
        """Whether masks and masked parameters have not been changed in place since they were multiplied."""
        return all(tensor._version == version for tensor, version in self._versions)

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function of torch, and record it if it is a layer of one of the parameters."""
        steps = steps_of(function, args, kwargs)
        if any(id(value) in self._known for value in (*(tree_leaves(args) if steps else args), *kwargs.values())):
            if steps is not None:
                with self:
                    return steps(*args)
            if function is functional.multi_head_attention_forward:
                with self:
                    return _opened(function)(*args, **kwargs)
            if getattr(function, "__name__", "") in PRODUCTS:
                return self._record_mask(function(*args, **kwargs), *args)
            call = call_of(function, args, kwargs)
            if call is not None:
                return self._record_call(call)
        return function(*args, **kwargs)

    def _record_mask(self, product: Tensor, *factors: Any) -> Tensor:
        """Record a product of a parameter with a constant of its shape, which then counts as the parameter."""
        for parameter, mask in (factors, factors[::-1]):
            known, constant = self._known.get(id(parameter)), self._constants.get(id(mask))
            if known and constant and not known.mask and mask.shape == parameter.shape:
                self._known[id(product)] = Known(product, known.name, constant[1])
                self._versions += [(product, product._version), (mask, mask._version)]
        return product

    def _record_call(self, call: Call) -> Tensor:
        number = len(self.forms)
        weight, bias = (self._known.get(id(p)) for p in (call.weight, call.bias))
        constants = (p if p is None or id(p) not in self._known else p.detach() for p in (call.weight, call.bias))
        result = call.run(*constants)
        self.forms.append(Form(result.shape, call.features, call.channels, call.by_feature))
        for known, as_weight in ((weight, True), (bias, False)):
            if known:
                self.uses[known.name].append(Use(number, as_weight, known.mask))
        if number not in self._probes:
            return result
        if weight is not None:
            self.inputs[number] = call.inputs().detach().clone()
        return result + self._probes[number]


def _opened(function: Any) -> Callable[..., Any]:
    """Return a Python function of torch whose own calls of functions are intercepted, in place of itself.

    Such a function hands itself to the interceptor if `has_torch_function` says so; with another one among its globals
    it goes on to its body. (So it is in torch 2.13; where it is not, attention is differentiated as a whole.)
    """
    names = {**function.__globals__, "has_torch_function": lambda _: False}
    body = FunctionType(function.__code__, names, function.__name__, function.__defaults__)
    body.__kwdefaults__ = function.__kwdefaults__
    return body


def call_recorded(network: Function, recorded: Iterable[str], leaves: Leaves, x: Tensor) -> tuple[Recorder, Tensor]:
    """Call a network and record some of its parameters; leaves stand for the others and for the probes."""
    tensors = network.tensors({name: leaf for name, leaf in leaves.items() if isinstance(name, str)})
    constants = {name: tensor for name, tensor in tensors.items() if name not in network.parameters}
    with Recorder({name: tensors[name] for name in recorded}, constants, leaves) as recorder:
        return recorder, as_outputs(network.call(tensors, x), len(x))


class FactoredRows(NamedTuple):
    """The factors of some rows of the Jacobian: those of some outputs on some units.

    A unit is a sample, or the whole batch if its samples are coupled.
    """

    units: slice
    outputs: slice
    inputs: dict[int, Tensor]  # of calls, of which their features are made, `(b, ...)`
    gradients: Leaves  # by results of calls, and by parameters that are used in any other way, `(b, c, ...)`


@torch.inference_mode(False)
@torch.no_grad()
def factored_rows(
    network: Network,
    structure: Structure,
    names: Sequence[str],
    batch: int,
    outputs: int,
    rows: Float[Tensor, "c k"] | None = None,
) -> Iterator[FactoredRows]:
    """Yield the factors of columns of the Jacobian, for so many units and outputs of each at a time.

    In place of its rows there may be sums of those of each unit, by these weights of its outputs.
    """
    forms, uses, batched = structure
    zero = torch.zeros((), dtype=torch.float64, device=network.x.device)
    leaves: Leaves = {use.call: zero.expand(forms[use.call].shape) for name in names for use in uses.get(name, ())}
    leaves |= {name: network.parameters[name] for name in names if name not in uses}

    def function(leaves: Leaves, x: Tensor) -> tuple[Tensor, dict[int, Tensor]]:
        recorder, y = call_recorded(network, uses, leaves, x)
        if recorder.uses != uses or [form.shape for form in recorder.forms] != [form.shape for form in forms]:
            raise RuntimeError("The network does not call its layers as it did before.")
        return y.flatten(), recorder.inputs

    def one_sample(x: Tensor, weights: Tensor) -> tuple[Tensor, dict[int, Tensor], Leaves]:
        result: Any = torch.func.vjp(lambda leaves: function(leaves, x[None]), leaves, has_aux=True)
        y, vjp, inputs = result
        if batched:
            return y, inputs, torch.vmap(vjp)(weights)[0]
        gradients = [vjp(weight)[0] for weight in weights]
        return y, inputs, {key: torch.stack([each[key] for each in gradients]) for key in leaves}

    units = network.x[None] if network.coupled else network.x
    k = network.outputs * len(network.x) // len(units)
    rows = torch.eye(k, dtype=torch.float64, device=units.device) if rows is None else rows
    for start in range(0, len(units), batch):
        x = units[start : start + batch]
        if not network.vmapped:
            # all parameters are leaves: a checkpoint, which knows the module's own, saves them too
            everything: Leaves = leaves | {name: p for name, p in network.parameters.items() if name not in uses}
            everything = {key: leaf.detach().requires_grad_() for key, leaf in everything.items()}
            with torch.enable_grad():
                y, inputs = function(everything, x[0] if network.coupled else x)
            inputs = {call: of_call[None] for call, of_call in inputs.items()}
            _check_outputs(network, y, None if network.coupled else start)
        for first in range(0, len(rows), outputs):
            some = slice(first, min(first + outputs, len(rows)))
            weights = rows[some]
            if network.vmapped:
                with torch.enable_grad():  # or the backward pass of a determinant errs (torch 2.13)
                    y, inputs, gradients = torch.vmap(one_sample, (0, None))(x, weights)
                _check_outputs(network, y, start)
            else:
                gradients = dict(zip(leaves, _vjps(y, [everything[key] for key in leaves], weights), strict=True))
            yield FactoredRows(slice(start, start + len(x)), some, inputs, gradients)


def _check_outputs(network: Network, y: Float[Tensor, "..."], start: int | None) -> None:
    """Refuse outputs that are not finite, or not those that the network had before, of samples from `start` on."""
    y = y.view(-1, network.outputs)
    bad = ~torch.isfinite(y).all(1)
    if bad.any():
        where = "" if start is None else f" from sample {start + int(bad.nonzero()[0])} on"
        raise Refused("not-finite", f"The outputs have NaN or infinite entries{where}; {REPAIR}")
    if network.y is not None:
        known = network.y if start is None else network.y[start : start + len(y)]
        if not bool(((y - known).abs() <= network.allowed).all()):
            raise Refused(
                "random-module", f"{RANDOM}. (Those of the trial are not those that the Jacobian was made with.)"
            )


def _vjps(y: Float[Tensor, " k"], leaves: list[Tensor], weights: Float[Tensor, "c k"]) -> list[Tensor]:
    """Return gradients of weighted outputs by plain automatic differentiation, each `(1, c, ...)`."""
    if not y.requires_grad:
        return [leaf.new_zeros(()).expand(1, len(weights), *leaf.shape) for leaf in leaves]
    options: Any = dict(retain_graph=True, allow_unused=True)
    if len(weights) > 1:
        with suppress(RuntimeError):  # a backward pass that has no rule for many at once
            together = torch.autograd.grad(y, leaves, weights, is_grads_batched=True, **options)
            zero = y.new_zeros(())
            return [
                (zero.expand(len(weights), *leaf.shape) if g is None else g)[None]
                for leaf, g in zip(leaves, together, strict=True)
            ]
    gradients = [torch.autograd.grad(y, leaves, weight, materialize_grads=True, **options) for weight in weights]
    return [torch.stack(of_leaf)[None] for of_leaf in zip(*gradients, strict=True)]
