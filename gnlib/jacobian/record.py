"""What a network multiplies its parameters with, recorded while it runs, and gradients by what comes out."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import FunctionType
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from gnlib.checks import REPAIR, as_outputs
from gnlib.jacobian.intercept import Watch
from gnlib.jacobian.layers import Call, call_of
from gnlib.jacobian.network import Network

PRODUCTS = ("mul", "multiply", "__mul__", "__rmul__")
TOGETHER = {  # several outputs at once; the gradients of others, such as cdist, prelu and solve, go wrong in torch 2.13
    f"{name}Backward"
    for name in (
        "AdaptiveAvgPool2D Add Addmm Alias AvgPool2D Bmm Cat Clone ConstantPadNd Convolution Div Elu Expand Gelu "
        "LeakyRelu MaxPool2DWithIndices Mean Mm Mul NativeBatchNorm NativeGroupNorm NativeLayerNorm Permute Relu "
        "Select Sigmoid Silu Slice Softmax Softplus Squeeze Sub Sum T Tanh Transpose UnsafeView Unsqueeze View"
    ).split()
} | {"torch::autograd::AccumulateGrad"}


class Form(NamedTuple):
    """A call in the order of the forward pass: the shape of what it returns, and as in :class:`Call`."""

    shape: torch.Size
    features: Callable[[Tensor], Tensor]
    channels: Callable[[Tensor], Tensor]
    by_feature: bool

    @property
    def size(self) -> tuple[int, ...]:
        """Numbers of positions, groups, and outputs of a group."""
        return tuple(self.channels(torch.empty(1, *self.shape, device="meta")).shape[1:])


class Use(NamedTuple):
    """A parameter in a call: the number of the call, whether as its weight, and the name of what masks it."""

    call: int
    as_weight: bool
    mask: str | None


class Recorder(Watch):
    """Put constants in the place of the parameters of layers, and add probes to what the layers return.

    What remains is a function of the probes, and of the parameters that are used in any other way.
    """

    def __init__(
        self, parameters: Mapping[str, Tensor], constants: Mapping[str, Tensor], probes: Mapping[int | str, Tensor]
    ) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self.uses: dict[str, list[Use]] = {name: [] for name in parameters}
        self.inputs: dict[int, Tensor] = {}
        self._known: dict[int, tuple[Tensor, str, str | None]] = {
            id(p): (p, name, None) for name, p in parameters.items()
        }
        self._constants = {id(c): (c, name) for name, c in constants.items()}
        self._versions: list[tuple[Tensor, int]] = []
        self._probes = probes

    @property
    def intact(self) -> bool:
        """Whether the masks, and what they masked, were left as they were when they were multiplied."""
        return all(tensor._version == version for tensor, version in self._versions)

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function of torch, and record it if it is a layer with parameters that are asked for."""
        if any(id(value) in self._known for value in (*args, *kwargs.values())):
            if function is functional.multi_head_attention_forward:
                with self:
                    return _opened(function)(*args, **kwargs)
            if getattr(function, "__name__", "") in PRODUCTS:
                return self._product(function(*args, **kwargs), *args)
            call = call_of(function, args, kwargs)
            if call is not None:
                return self._recorded(call)
        return function(*args, **kwargs)

    def _product(self, product: Tensor, *factors: Any) -> Tensor:
        """Take note of a parameter times a mask of its shape."""
        for parameter, mask in (factors, factors[::-1]):
            if id(parameter) in self._known and id(mask) in self._constants and mask.shape == parameter.shape:
                _, name, masked = self._known[id(parameter)]
                if masked is None:
                    self._known[id(product)] = product, name, self._constants[id(mask)][1]
                    self._versions += [(product, product._version), (mask, mask._version)]
        return product

    def _recorded(self, call: Call) -> Tensor:
        number = len(self.forms)
        weight, bias = (self._known.get(id(p)) for p in (call.weight, call.bias))
        constants = (p if p is None or id(p) not in self._known else p.detach() for p in (call.weight, call.bias))
        value = call.run(*constants)
        self.forms.append(Form(value.shape, call.features, call.channels, call.by_feature))
        for use, as_weight in ((weight, True), (bias, False)):
            if use is not None:
                self.uses[use[1]].append(Use(number, as_weight, use[2]))
        if number not in self._probes:
            return value
        if weight is not None:
            self.inputs[number] = call.inputs().detach().clone()
        return value + self._probes[number]


def _opened(function: Any) -> Callable[..., Any]:
    """Return a function of torch so that the functions which it calls are seen, in place of itself."""
    body = FunctionType(
        function.__code__,
        {**function.__globals__, "has_torch_function": lambda _: False},
        function.__name__,
        function.__defaults__,
    )
    body.__kwdefaults__ = function.__kwdefaults__
    return body


class Structure(NamedTuple):
    """What is known of a network.

    Attributes
    ----------
    forms
        its calls
    uses
        the uses of all parameters that are used by them alone
    together
        whether gradients of several outputs of a sample are taken together, which is faster
    """

    forms: list[Form]
    uses: dict[str, list[Use]]
    together: bool = False


NOTHING = Structure([], {})


def structures_of(networks: Sequence[Network]) -> list[Structure]:
    """Return the calls of networks that differ in their data alone."""
    found = [structure_of(network) for network in networks]
    return found if all(one.uses == found[0].uses for one in found) else [NOTHING] * len(found)


def structure_of(network: Network) -> Structure:
    """Return the calls of a network, if its forward pass is the same for all samples."""
    names = [*network.parameters] if network.vmapped or network.coupled else []
    while names:
        found = _tried(network, names)
        if [*found.uses] == names:
            break
        names = [*found.uses]  # once more, as calls are numbered
    else:
        return NOTHING
    if network.vmapped and network.backward <= TOGETHER:
        found = found._replace(together=True)
    with suppress(Exception), network.as_template():  # a rehearsal: tensors may be wrapped otherwise than in the trial
        next(rows(network, found, [*network.parameters], 1, 1))
        return found
    return NOTHING


def _tried(network: Network, names: list[str]) -> Structure:
    """Run a network with some of its parameters recorded, and leave out those that it uses in any other way."""
    leaves: dict[int | str, Tensor] = {name: p.detach().requires_grad_() for name, p in network.parameters.items()}
    recorder = Recorder({}, {}, {})

    def run(x: Tensor) -> Tensor:
        nonlocal recorder
        recorder, y = _run(network, names, leaves, x)
        return y

    checkpoints = torch.autograd.graph.disable_saved_tensors_hooks("a checkpoint runs a part of a network again")
    with network.as_template(), torch.enable_grad(), checkpoints:
        try:
            y = run(network.x) if network.coupled else torch.vmap(lambda x: run(x[None]))(network.x[:1])
            wanted = [leaves[name] for name in names]
            found = torch.autograd.grad(y.sum(), wanted, allow_unused=True) if y.requires_grad else [None] * len(names)
        except Exception:  # whatever a module does that cannot be recorded
            return NOTHING
    elsewhere = {name for name, gradient in zip(names, found, strict=True) if gradient is not None}
    alike = {name: uses for name, uses in recorder.uses.items() if _alike(uses, recorder.forms, leaves[name])}
    return Structure(recorder.forms, {name: alike[name] for name in alike if name not in elsewhere and recorder.intact})


def _alike(uses: list[Use], forms: list[Form], parameter: Tensor) -> bool:
    """Say whether a parameter is used in one way, so that a use more is so many positions more."""
    kinds = {(use.as_weight, use.mask, forms[use.call].by_feature, forms[use.call].size[1:]) for use in uses}
    return len(kinds) <= 1 and all(as_weight or parameter.numel() == math.prod(size) for as_weight, _, _, size in kinds)


def _run(
    network: Network, recorded: Iterable[str], leaves: Mapping[int | str, Tensor], x: Tensor
) -> tuple[Recorder, Tensor]:
    """Run a network and record some of its parameters, with leaves for others, by name, and for probes, by call."""
    tensors = network.tensors({name: leaf for name, leaf in leaves.items() if isinstance(name, str)})
    constants = {name: tensor for name, tensor in tensors.items() if name not in network.parameters}
    with Recorder({name: tensors[name] for name in recorded}, constants, leaves) as recorder:
        return recorder, as_outputs(network.call(tensors, x), len(x))


class Rows(NamedTuple):
    """What rows of the Jacobian are made of: some outputs on some units.

    A unit is a sample, or the whole batch if its samples are coupled.

    Attributes
    ----------
    units, outputs
        which they are
    inputs
        what the features of calls are made of, by number of the call, `(b, ...)`
    gradients
        by what calls return, and by parameters that are used in any other way, `(b, c, ...)`
    """

    units: slice
    outputs: slice
    inputs: dict[int, Tensor]
    gradients: dict[int | str, Tensor]


@torch.inference_mode(False)
@torch.no_grad()
def rows(network: Network, structure: Structure, names: Sequence[str], batch: int, outputs: int) -> Iterator[Rows]:
    """Yield what columns of the Jacobian are made of, for so many units and outputs of each at a time."""
    forms, uses, together = structure
    zero = torch.zeros((), dtype=torch.float64, device=network.x.device)
    calls = [use.call for name in names for use in uses.get(name, ())]
    leaves: dict[int | str, Tensor] = {call: zero.expand(forms[call].shape) for call in calls}
    leaves |= {name: network.parameters[name] for name in names if name not in uses}

    def function(leaves: dict[int | str, Tensor], x: Tensor) -> tuple[Tensor, dict[int, Tensor]]:
        recorder, y = _run(network, uses, leaves, x)
        if recorder.uses != uses or [form.shape for form in recorder.forms] != [form.shape for form in forms]:
            raise RuntimeError("The network does not call its layers as it did before.")
        return y.flatten(), recorder.inputs

    def sample(x: Tensor, weights: Tensor) -> tuple[Tensor, dict[int, Tensor], dict[int | str, Tensor]]:
        pulled: Any = torch.func.vjp(lambda leaves: function(leaves, x[None]), leaves, has_aux=True)
        y, pull, inputs = pulled
        if together:
            return y, inputs, torch.vmap(pull)(weights)[0]
        found = [pull(weight)[0] for weight in weights]
        return y, inputs, {key: torch.stack([gradients[key] for gradients in found]) for key in leaves}

    units = network.x[None] if network.coupled else network.x
    for start in range(0, len(units), batch):
        x = units[start : start + batch]
        if not network.vmapped:
            # all of them, as a checkpoint, which knows the module's own, saves what those save
            everything = leaves | {name: p for name, p in network.parameters.items() if name not in uses}
            everything = {key: leaf.detach().requires_grad_() for key, leaf in everything.items()}
            apart = [everything[key] for key in leaves]
            with torch.enable_grad():
                y, inputs = function(everything, x[0] if network.coupled else x)
            inputs = {call: found[None] for call, found in inputs.items()}
            _check(y[None], None if network.coupled else start)
        k = network.outputs * len(network.x) // len(units)
        for first in range(0, k, outputs):
            some = slice(first, min(first + outputs, k))
            weights = torch.eye(k, dtype=torch.float64, device=x.device)[some]
            if network.vmapped:
                y, inputs, gradients = torch.vmap(sample, (0, None))(x, weights)
                _check(y, start)
            else:
                gradients = dict(zip(leaves, _pulled(y, apart, weights), strict=True))
            yield Rows(slice(start, start + len(x)), some, inputs, gradients)


def _check(y: Float[Tensor, "b k"], start: int | None) -> None:
    """Refuse outputs that are not finite, of samples from `start` on."""
    bad = ~torch.isfinite(y).all(1)
    if bad.any():
        where = "" if start is None else f" from sample {start + int(bad.nonzero()[0])} on"
        raise ValueError(f"The outputs have NaN or infinite entries{where}; {REPAIR}")


def _pulled(y: Float[Tensor, " k"], leaves: list[Tensor], weights: Float[Tensor, "c k"]) -> list[Tensor]:
    """Return gradients of weighted outputs by plain automatic differentiation, each `(1, c, ...)`."""
    if not y.requires_grad:
        return [leaf.new_zeros(()).expand(1, len(weights), *leaf.shape) for leaf in leaves]
    kept: Any = dict(retain_graph=True, allow_unused=True, materialize_grads=True)
    if len(weights) > 1:
        with suppress(RuntimeError):  # a backward pass that has no rule for many at once
            return [g[None] for g in torch.autograd.grad(y, leaves, weights, is_grads_batched=True, **kept)]
    found = [torch.autograd.grad(y, leaves, weight, **kept) for weight in weights]
    return [torch.stack(each)[None] for each in zip(*found, strict=True)]
