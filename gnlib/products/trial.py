"""Try a module on its data before products: is it a function, and of each sample by itself, and how it is derived."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from gnlib.jacobian.inputs import Inputs
from gnlib.jacobian.network import Mode
from gnlib.jacobian.refusals import check_mode, hint_of, line_of
from gnlib.jacobian.trial import WRAPPERS
from gnlib.products.curvature import Curvature, Outputs, Own
from gnlib.products.parts import as_dtype, narrowed, parts_of, tensors_of
from gnlib.products.passes import Passes, first_of, modes_of, set_modes
from gnlib.refused import Refused

GIB = 2**30
MARGIN = 3  # of the memory that a backward pass is known to take: its temporary tensors, and those of a second pass
VECTORS = 4  # of the length of the parameters that a product works with
PRECISIONS = torch.float64, torch.float32, torch.bfloat16


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
    before = modes_of(module)
    if mode is not None:
        module.train(mode == "train")
    modes = modes_of(module)
    set_modes(before)
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
