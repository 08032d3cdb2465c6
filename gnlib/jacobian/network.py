"""The outputs of a module as a checked function of its parameters, and their gradients."""

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parameter import is_lazy

from gnlib.checks import as_float64, as_outputs
from gnlib.jacobian.double import InDouble
from gnlib.jacobian.randomness import Generators
from gnlib.jacobian.trial import examine

Factors = dict[str, Tensor]
"""A tensor for each parameter, by name."""

ASIDE: dict[str, Any] = {"_backward_hooks": {}, "_backward_pre_hooks": {}, "_compiled_call_impl": None}
"""What a module holds that changes gradients, or how it is called, but not the function that it is."""


class Network:
    """The outputs of a module on data, as a function of its parameters in double precision.

    The module itself serves as a template only: it is called with other tensors in place of its own, and everything
    that a forward pass leaves behind in it is undone.

    Attributes
    ----------
    module, mode
        as they were passed, without what is wrapped around the module
    x
        the data, in double precision unless they are integers
    parameters
        the parameters that require a gradient, by name, each once, in the order in which the module registered them
    frozen, buffers
        the other parameters and the buffers, by name
    generators
        where the module may draw random numbers from
    copied
        bytes of the copies in double precision
    outputs, coupled, vmapped, bytes_per_sample, backward
        as in :class:`gnlib.jacobian.trial.Findings`
    """

    @torch.inference_mode(False)
    def __init__(
        self,
        module: nn.Module,
        x: Tensor,
        output: Callable[..., Tensor] | None = None,
        mode: str | None = None,
        memory: float = 4.0,
    ) -> None:
        if not isinstance(module, nn.Module):
            raise TypeError(f"module is of type {type(module).__name__}; pass a torch.nn.Module.")
        if mode not in ("eval", "train", None):
            raise ValueError(f"mode is {mode!r}; it must be 'eval', 'train' or None.")
        self.module, self._output, self.mode = _unwrapped(module), output, mode
        named = dict(self.module.named_parameters())
        _check_kinds(self.module, named)
        devices = {p.device for p in named.values()}
        if isinstance(x, Tensor) and devices and x.device not in devices:
            raise ValueError(f"x is on {x.device} but the module on {devices.pop()}; move one of them.")
        self.x = _as_batch(x)
        double = {name: _as_double(p, f"The parameter {name}") for name, p in named.items()}
        self.parameters = {name: p for name, p in double.items() if named[name].requires_grad}
        if not self.parameters:
            raise ValueError("module has no parameter that requires a gradient; there is nothing to differentiate by.")
        self.frozen = {name: p for name, p in double.items() if not named[name].requires_grad}
        self.buffers = {
            name: b.to(torch.float64) if b.is_floating_point() else b for name, b in self.module.named_buffers()
        }
        copies = [(double[name], p) for name, p in named.items()] + [(self.x, x)]
        self.copied = sum(8 * d.numel() for d, original in copies if d.data_ptr() != original.data_ptr())
        self.copied += 2 * sum(b.nbytes for b in self.buffers.values())
        self.generators = Generators(self.module, self.x.device)
        self.outputs, self.coupled, self.vmapped, self.bytes_per_sample, self.backward = examine(self, memory)

    @contextmanager
    def as_template(self) -> Iterator[None]:
        """Have the module compute in the mode and the precision asked for, then leave everything as it was found."""
        holders: list[Any] = [d for m in self.module.modules() for d in (vars(m), m._parameters, m._buffers)]
        found = [dict(holder) for holder in holders]
        dtype, fast = torch.get_default_dtype(), torch.backends.mha.get_fastpath_enabled()
        states, gradients = self.generators.states(), torch.is_grad_enabled()
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.set_grad_enabled(gradients))
            # fused attention has no rule for vmap, and constants made in a forward pass are of the default precision
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            stack.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", "There is a performance drop")  # a kernel without a rule, one by one
            warnings.filterwarnings("ignore", "None of the inputs have requires_grad")  # a checkpoint without gradients
            if "torch._dynamo" in sys.modules:  # otherwise nothing is compiled
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(InDouble())
            torch.backends.mha.set_fastpath_enabled(False)
            torch.set_default_dtype(torch.float64)
            try:
                for m in self.module.modules():
                    vars(m).update(ASIDE)
                if self.mode is not None:
                    self.module.train(self.mode == "train")
                yield
            finally:
                torch.set_default_dtype(dtype)
                torch.backends.mha.set_fastpath_enabled(fast)
                self.generators.restore(states)
                # a pruned weight, say, is an attribute set by each forward pass, and functional_call does not restore
                # the parameters of a module that is reachable under two names
                for holder, was in zip(holders, found, strict=True):
                    holder.clear()
                    holder.update(was)

    def __call__(self, parameters: dict[str, Tensor], x: Tensor) -> Float[Tensor, "n k"]:
        """Return the outputs on the samples `x` with these in place of some of the parameters."""
        return as_outputs(self.call(self.tensors(parameters), x), len(x))

    def tensors(self, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return all that a module holds, with these in place of some of the parameters."""
        buffers = {name: b.clone() for name, b in self.buffers.items()}  # a forward pass may update them
        return {**self.frozen, **self.parameters, **parameters, **buffers}

    def call(self, tensors: dict[str, Tensor], x: Tensor) -> Any:
        """Return what the module makes of samples, or `output` of that; the buffers among `tensors` may change."""
        result = torch.func.functional_call(self.module, tensors, x.clone())  # which may be changed in place
        return result if self._output is None else self._output(result)

    def pull(
        self, leaves: dict[str, Tensor], y: Float[Tensor, "n k"], cotangent: Float[Tensor, "n k"]
    ) -> tuple[Tensor, ...]:
        """Return the gradients of outputs, weighted, by plain automatic differentiation."""
        kept = dict(retain_graph=True, allow_unused=True, materialize_grads=True)
        return torch.autograd.grad(y, list(leaves.values()), cotangent, **kept)


def networks_of(
    module: nn.Module,
    x: Tensor | Sequence[Tensor],
    output: Callable[..., Tensor] | None = None,
    mode: str | None = None,
    memory: float = 4.0,
) -> list[Network]:
    """Return the function of a module on a batch; or on each of several, if the samples of a batch are coupled."""
    if not isinstance(x, list | tuple) or not x:
        return [Network(module, x, output, mode, memory)]  # type: ignore[arg-type]
    first = Network(module, x[0], output, mode, memory)
    if len(x) == 1:
        return [first]
    if not first.coupled:
        return [Network(module, torch.cat([*x]), output, mode, memory)]
    found = [first, *(Network(module, batch, output, mode, memory) for batch in x[1:])]
    for network in found[1:]:
        network.parameters, network.frozen, network.buffers = first.parameters, first.frozen, first.buffers
    return found


def _unwrapped(module: Any) -> nn.Module:
    """Return what was compiled, or is spread over devices."""
    spread = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    while isinstance(module, spread) or hasattr(module, "_orig_mod"):
        module = module.module if isinstance(module, spread) else module._orig_mod
    return module


def _check_kinds(module: nn.Module, named: dict[str, nn.Parameter]) -> None:
    """Refuse modules whose parameters have no values, or cannot be exchanged."""
    for name, m in module.named_modules():
        described = f"{name or 'module'} ({type(m).__name__})"
        if isinstance(m, torch.jit.ScriptModule):
            raise ValueError(f"{described} is scripted, and its parameters are fixed; pass the module it was made of.")
        if ".quantized." in type(m).__module__:
            raise ValueError(
                f"{described} is quantised: integers in place of weights have no gradient; pass the module it was made "
                "of, or one with weights rounded likewise."
            )
    for name, p in named.items():
        if is_lazy(p):
            raise ValueError(f"The parameter {name} has no shape yet; call the module on data once, then pass it.")
        if p.is_meta:
            raise ValueError(
                f"The parameter {name} is on the meta device, where it has no values; make the module on a device that "
                "computes, or load its weights."
            )


def _as_batch(x: Tensor) -> Tensor:
    """Return data in double precision, or as they are if they are integers, such as the numbers of tokens."""
    batch = _as_double(x, "x")
    if x.ndim == 0:
        raise ValueError("x has shape (); the first axis of x must count samples.")
    return batch


def _as_double(tensor: Tensor, name: str) -> Tensor:
    """Return a tensor in double precision, but integers as they are."""
    double = as_float64(tensor, name)
    if not tensor.is_floating_point():
        double = tensor.detach()
    return double.clone() if double.is_inference() else double  # which automatic differentiation cannot take
