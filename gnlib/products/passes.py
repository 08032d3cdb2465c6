"""A module on its data in any precision, batch by batch: outputs, gradients, and derivatives along a direction."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_map

from gnlib.jacobian.network import Mode
from gnlib.products.curvature import Outputs
from gnlib.products.parts import Part, as_dtype, narrowed
from gnlib.refused import Refused

FIRST = 2  # samples that are tried

Named = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Passes:
    """A module and its data, cut into parts that fit into the memory.

    The module lends its tensors, in another precision if that is asked for, and is left as it is.
    """

    module: nn.Module
    parts: tuple[Part, ...]
    output: Callable[..., Tensor] | None
    mode: Mode | None
    modes: dict[nn.Module, bool]  # whether each part is in training mode
    dtype: torch.dtype
    parameters: Named  # those that are differentiated by
    frozen: Named  # the other parameters
    buffers: Named
    forward_mode: bool = True  # whether derivatives along a direction come from a forward pass
    together: bool = True  # whether a gradient can be had of the same pass
    whole: bool = False  # whether the samples of a part depend on each other, and stay together

    @cached_property
    def size(self) -> int:
        """Number p of parameters."""
        return sum(p.numel() for p in self.parameters.values())

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(iter(self.parameters.values())).device

    def call(self, parameters: Mapping[str, Tensor], part: Part) -> Outputs:
        """Return the outputs with these in the place of the parameters."""
        x, buffers = tree_map(Tensor.clone, (part.x, self.buffers))  # which a forward pass may change
        args, kwargs = ((), dict(x)) if isinstance(x, Mapping) else (x if isinstance(x, tuple) else (x,), {})
        y = torch.func.functional_call(self.module, {**self.frozen, **buffers, **parameters}, args, kwargs)
        y = y if self.output is None else self.output(y)
        if not isinstance(y, Tensor) or not y.ndim or len(y) != part.samples:
            got = f"of shape {tuple(y.shape)}" if isinstance(y, Tensor) else f"of type {type(y).__name__}"
            expected = "a tensor was expected whose first axis counts the samples. Pass output=, which returns one."
            raise Refused("wrong-outputs", f"The outputs of {part.samples} samples are {got}; {expected}")
        return y

    def outputs(self, part: Part) -> Outputs:
        """Return the outputs."""
        with self.as_meant(), torch.no_grad():
            return self.call(self.parameters, part)

    def pull(self, part: Part, weights: Callable[[Outputs], Outputs]) -> tuple[Outputs, Float[Tensor, " p"]]:
        """Return the outputs f and the gradient of their sum with weights made of them, `J^T w(f)`, as precise as f."""
        with self.as_meant(), torch.enable_grad():
            leaves = self._leaves()
            return _pulled(leaves, self.call(leaves, part), weights)

    def push(self, part: Part, direction: Float[Tensor, " p"]) -> tuple[Outputs, Outputs]:
        """Return the outputs, and their derivative along a direction of the parameters: `J v`."""
        if not self.forward_mode:
            return self._push_twice(part, direction)
        with self.as_meant(), torch.no_grad():
            return self._push_forward(self.parameters, part, direction)

    def push_and_pull(
        self, part: Part, direction: Float[Tensor, " p"], weights: Callable[[Outputs, Outputs], Outputs]
    ) -> tuple[Outputs, Float[Tensor, " p"]]:
        """Return the derivative along a direction, and the gradient with weights made of outputs and it: `J^T w(J v)`.

        One forward pass serves both where it can.
        """
        if not self.together:
            _, change = self.push(part, direction)
            return change, self.pull(part, lambda f: weights(f, change))[1]
        with self.as_meant(), torch.enable_grad():
            leaves = self._leaves()
            y, change = self._push_forward(leaves, part, direction)  # beyond it the way back takes no derivatives along
            return change.detach(), _pulled(leaves, y, lambda f: weights(f, change.detach()))[1]

    def _leaves(self) -> Named:
        """Return parameters that gradients are taken by."""
        return {name: p.detach().requires_grad_() for name, p in self.parameters.items()}

    def _pieces(self, vector: Float[Tensor, " p"]) -> list[Tensor]:
        """Return the parts of a vector in the shapes of the parameters."""
        shapes = [p.shape for p in self.parameters.values()]
        return [part.view(s) for part, s in zip(vector.split([s.numel() for s in shapes]), shapes, strict=True)]

    def _along(self, direction: Float[Tensor, " p"]) -> list[Tensor]:
        return [piece.to(self.dtype) for piece in self._pieces(direction)]

    def _push_forward(self, parameters: Named, part: Part, direction: Float[Tensor, " p"]) -> tuple[Outputs, Outputs]:
        with forward_ad.dual_level(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".torch.jit.script", DeprecationWarning)  # of torch's own, at first use
            duals = map(forward_ad.make_dual, parameters.values(), self._along(direction))
            y, change = forward_ad.unpack_dual(self.call(dict(zip(parameters, duals, strict=True)), part))
            return y, torch.zeros_like(y) if change is None else change

    def _push_twice(self, part: Part, direction: Float[Tensor, " p"]) -> tuple[Outputs, Outputs]:
        """Differentiate a gradient by its weights: for functions that have no derivative along a direction."""
        with self.as_meant(), torch.enable_grad():
            leaves = self._leaves()
            y = self.call(leaves, part)
            weights = torch.zeros_like(y, requires_grad=True)
            options = dict(create_graph=True, allow_unused=True, materialize_grads=True)
            gradients = torch.autograd.grad(y, [*leaves.values()], weights, **options)
            pairs = zip(gradients, self._along(direction), strict=True)
            total = torch.stack([(g * v).sum() for g, v in pairs]).sum()
            return y.detach(), torch.autograd.grad(total, weights)[0]

    @contextmanager
    def as_meant(self) -> Iterator[None]:
        """Call the module in the mode that is meant, with attention that has a derivative along a direction."""
        before, default = modes_of(self.module), torch.get_default_dtype()
        fast, off = torch.backends.mha.get_fastpath_enabled(), torch.autocast(self.device.type, enabled=False)
        try:
            self.module.train(self.module.training)  # which empties what some modules keep of parameters between calls
            set_modes(self.modes)
            torch.set_default_dtype(self.dtype)
            torch.backends.mha.set_fastpath_enabled(False)
            with torch.inference_mode(False), sdpa_kernel(SDPBackend.MATH), off:
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)
            torch.set_default_dtype(default)
            self.module.train(self.module.training)
            set_modes(before)


def _pulled(leaves: Named, y: Outputs, weights: Callable[[Outputs], Outputs]) -> tuple[Outputs, Float[Tensor, " p"]]:
    """Return outputs, and the gradient of their sum with weights by leaves that they were computed from."""
    with torch.no_grad():
        w = weights(y.detach())
    found = torch.autograd.grad(y, [*leaves.values()], w, allow_unused=True, materialize_grads=True)
    return y.detach(), torch.cat([g.flatten() for g in found])


def modes_of(module: nn.Module) -> dict[nn.Module, bool]:
    """Return which parts of a module are in training mode."""
    return {m: m.training for m in module.modules()}


def set_modes(modes: Mapping[nn.Module, bool]) -> None:
    """Put parts of a module into such modes."""
    for m, training in modes.items():
        m.training = training


def on_first(passes: Passes, dtype: torch.dtype) -> Passes:
    """Return the same on the first samples alone, in a precision."""
    part = first_of(passes)
    held = {name: as_dtype(getattr(passes, name), dtype) for name in ("parameters", "frozen", "buffers")}
    part = Part(as_dtype(part.x, dtype), as_dtype(part.y, dtype), part.samples)
    return replace(passes, parts=(part,), dtype=dtype, **held)


def first_of(passes: Passes) -> Part:
    """Return some samples, or those that belong together."""
    part = passes.parts[0]
    return part if passes.whole else narrowed(part, 0, min(FIRST, part.samples))
