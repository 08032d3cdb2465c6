"""A module on its data in any precision, batch by batch: outputs, gradients, and derivatives along a direction."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves, tree_map

from gnlib.jacobian.inputs import Inputs
from gnlib.jacobian.network import Mode
from gnlib.jacobian.refusals import check_mode, hint_of, line_of
from gnlib.jacobian.trial import WRAPPERS
from gnlib.products.curvature import Curvature, Outputs, Own
from gnlib.products.parts import Part, as_dtype, narrowed, parts_of, tensors_of
from gnlib.refused import Refused

GIB = 2**30
MARGIN = 3  # of the memory that a backward pass is known to take: its temporary tensors, and those of a second pass
FIRST = 2  # samples that are tried
VECTORS = 4  # of the length of the parameters that a product works with
PRECISIONS = torch.float64, torch.float32, torch.bfloat16

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
        """Return the outputs f, and the gradient of their sum with the weights that are made of them: `J^T w(f)`.

        It is of the precision of the passes, since a copy in double precision takes as long as a part of a pass.
        """
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
        before, default = _modes_of(self.module), torch.get_default_dtype()
        fast, off = torch.backends.mha.get_fastpath_enabled(), torch.autocast(self.device.type, enabled=False)
        try:
            self.module.train(self.module.training)  # which empties what some modules keep of parameters between calls
            _set_modes(self.modes)
            torch.set_default_dtype(self.dtype)
            torch.backends.mha.set_fastpath_enabled(False)
            with torch.inference_mode(False), sdpa_kernel(SDPBackend.MATH), off:
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)
            torch.set_default_dtype(default)
            self.module.train(self.module.training)
            _set_modes(before)


def passes_of(
    module: nn.Module,
    x: Inputs,
    y: Any,
    curvature: Curvature,
    *,
    output: Callable[..., Tensor] | None,
    mode: Mode | None,
    memory: float,
    dtype: torch.dtype,
) -> Passes:
    """Return a module on its data, after trying whether it is a function of each sample by itself."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"module is of type {type(module).__name__}; pass a torch.nn.Module.")
    if dtype not in PRECISIONS:
        raise Refused("bad-option", f"dtype is {dtype}; torch.float64, torch.float32 or torch.bfloat16 was expected.")
    if mode not in ("eval", "train", None):
        raise Refused("bad-option", f"mode is {mode!r}; it must be 'eval', 'train' or None.")
    while (wrapped := getattr(module, "module" if isinstance(module, WRAPPERS) else "_orig_mod", None)) is not None:
        module = wrapped  # spread over devices, or compiled
    parts = parts_of(x, y, dtype, targets=isinstance(curvature, Own))
    before = _modes_of(module)
    if mode is not None:
        module.train(mode == "train")
    modes = _modes_of(module)
    _set_modes(before)
    named = {name: as_dtype(p.detach(), dtype) for name, p in module.named_parameters()}
    own = {name for name, p in module.named_parameters() if p.requires_grad}
    if not own:
        raise Refused("no-parameters", "The module has no parameter that requires a gradient; there is no matrix.")
    buffers = {name: as_dtype(b.detach(), dtype) for name, b in module.named_buffers()}
    parameters, frozen = ({name: p for name, p in named.items() if (name in own) == is_own} for is_own in (True, False))
    passes = Passes(module, tuple(parts), output, mode, modes, dtype, parameters, frozen, buffers)
    given = [leaf for part in parts for leaf in (*tensors_of(part.x), *tree_leaves(part.y)) if isinstance(leaf, Tensor)]
    places = sorted({str(t.device) for t in (*given, *named.values())})
    if len(places) > 1:
        raise Refused("two-devices", f"x, y and the module are on {' and '.join(places)}; move them to one device.")
    with passes.as_meant():
        coupled = check_mode(passes)
    devices = {p.device for p in named.values() if p.device.type == "cuda"}
    with torch.random.fork_rng(devices):  # of which a module that is refused may have drawn
        passes, saved = _tried(passes, curvature, coupled)
    passes = replace(passes, together=not coupled)  # with statistics of a batch, one pass for both takes longer
    if not _is_adjoint(passes):
        apart = replace(passes, together=False)
        passes = replace(apart, forward_mode=passes.together and _is_adjoint(apart))
    held = 8 * VECTORS * passes.size + sum(t.nbytes for t in (*named.values(), *buffers.values()))
    most = int((memory * GIB - held) / (MARGIN * max(saved, 1)))
    if most < 1:
        needed = f"{(held + MARGIN * saved) / GIB:.3g} are needed for one sample at a time"
        remedy = "allow more, or pass shorter samples, or freeze parameters."
        raise Refused("too-little-memory", f"memory is {memory} GiB but {needed}; {remedy}")
    cut = [narrowed(p, start, min(start + most, p.samples)) for p in parts for start in range(0, p.samples, most)]
    if (coupled and len(cut) > 1) or (passes.whole and len(cut) > len(parts)):
        what = "Batch normalisation in training depends" if coupled else "Outputs depend"
        instead = "pass one batch and enough memory, or mode='eval'" if coupled else "allow more memory"
        cuts = f"{len(cut)} batches ({len(parts)} given, at most {most} samples for memory={memory})"
        raise Refused("samples-coupled", f"{what} on the whole batch, and the data are {cuts}; {instead}.")
    return replace(passes, parts=tuple(cut))


def _modes_of(module: nn.Module) -> dict[nn.Module, bool]:
    return {m: m.training for m in module.modules()}


def _set_modes(modes: Mapping[nn.Module, bool]) -> None:
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


def _tried(passes: Passes, curvature: Curvature, coupled: bool) -> tuple[Passes, float]:
    """Refuse what is no function, or none of each sample by itself; return the bytes that a sample leaves as well."""
    try:
        y, saved = _saved(passes)
    except Exception as error:
        passes = _of_all(passes, error)
        y, saved = _saved(passes)
    part = first_of(passes)
    if not torch.isfinite(y).all():
        where = "on the first samples; look at weights and data."
        raise Refused("not-finite", f"The outputs have NaN or infinite entries {where}")
    close = 100 * torch.finfo(passes.dtype).eps * float(y.abs().max())
    if float((passes.outputs(part) - y).abs().max()) > close:
        what = "and a random function has no derivative; pass mode='eval', or switch that off."
        raise Refused("random-module", f"The module is random, or changes from call to call (dropout?), {what}")
    if part.samples > 1 and not coupled and not passes.whole:
        try:
            alone = torch.cat([passes.outputs(narrowed(part, i, i + 1)) for i in range(part.samples)])
        except Exception:  # a module may ask for more samples than one
            alone = y
        if alone.shape == y.shape and float((alone - y).abs().max()) > close:
            if passes.mode != "train":
                what = "The outputs of a sample depend on the other samples of its batch"
                remedy = "make them independent, or pass mode='train' for the function of each batch as a whole."
                raise Refused("samples-coupled", f"{what}; {remedy}")
            passes = replace(passes, whole=True)
    if isinstance(curvature, Own):
        curvature.check(y, part.y)
    return passes, saved


def _saved(passes: Passes) -> tuple[Outputs, float]:
    """Return the first outputs, and the bytes that a sample leaves for a backward pass."""
    part, saved = first_of(passes), dict[int, int]()
    held = (*passes.parameters.values(), *passes.frozen.values(), *passes.buffers.values())
    own = {tensor.untyped_storage().data_ptr() for tensor in held}

    def save(tensor: Tensor) -> Tensor:
        if (place := tensor.untyped_storage().data_ptr()) not in own:
            saved[place] = tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        y, _ = passes.pull(part, torch.zeros_like)
    return y, sum(saved.values()) / part.samples


def _of_all(passes: Passes, error: Exception) -> Passes:
    """Return a module that takes no fewer samples than all, such as the nodes of a graph, or say why it fails."""
    part, few = passes.parts[0], first_of(passes)
    try:
        passes.pull(part, torch.zeros_like)
    except Exception:
        if isinstance(error, ValueError):
            raise error from None
        hint = hint_of(min(tensors_of(part.x), key=Tensor.is_floating_point))  # integers first
        raise Refused(
            "module-fails",
            f"module fails on the first {few.samples} samples, in {passes.dtype}{line_of(error)}: {error} ({hint})",
        ) from error
    if passes.mode != "train":
        raise Refused(
            "samples-coupled",
            f"module fails on {few.samples} samples, though not on {part.samples}: {error} (If the outputs of a "
            "sample are meant to depend on the others, as those of the nodes of a graph, pass mode='train'.)",
        ) from error
    return replace(passes, whole=True)


def _pulled(leaves: Named, y: Outputs, weights: Callable[[Outputs], Outputs]) -> tuple[Outputs, Float[Tensor, " p"]]:
    """Return outputs, and the gradient of their sum with weights by leaves that they were computed from."""
    with torch.no_grad():
        w = weights(y.detach())
    found = torch.autograd.grad(y, [*leaves.values()], w, allow_unused=True, materialize_grads=True)
    return y.detach(), torch.cat([g.flatten() for g in found])


def _is_adjoint(passes: Passes) -> bool:
    """Whether derivatives along a direction by a forward pass are those of backward passes.

    They are not where it hides something from autograd (`torch.no_grad`, hooks on gradients, backward passes of one's
    own): there a gradient is differentiated once more, which takes longer. Some take a forward pass for either alone,
    as checkpoints do.
    """
    part, generator = first_of(passes), torch.Generator().manual_seed(0)
    v = torch.randn(passes.size, generator=generator, dtype=torch.float64).to(passes.device)
    drawn: list[Outputs] = []

    def weights(f: Outputs, _: Outputs) -> Outputs:
        drawn.append(torch.randn(f.shape, generator=generator, dtype=torch.float64).to(f))
        return drawn[-1]

    try:
        change, gradient = passes.push_and_pull(part, v, weights)
    except (RuntimeError, NotImplementedError):
        return False
    (u,) = drawn
    one, other = float((u.double() * change.double()).sum()), float(gradient.double() @ v)
    size = float(u.double().norm() * change.double().norm())
    return math.isfinite(one) and abs(one - other) <= 10 * torch.finfo(passes.dtype).eps ** 0.5 * max(size, 1e-300)
