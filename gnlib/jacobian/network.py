"""The outputs of a module as a function of its parameters, in double precision, and their gradients."""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from gnlib.checks import as_outputs
from gnlib.jacobian.intercept import DoublePrecision, Generators

GIB = 2**30
MARGIN = 2  # of the memory that a backward pass is known to take: its temporary tensors are not known

Factors = dict[str, Tensor]
"""A tensor for each parameter, by name."""

Mode = Literal["eval", "train"]


@dataclass(frozen=True, eq=False)
class Function:
    """The outputs of a module on data, as a function of its parameters; nothing is known of it yet.

    The module serves as a template: it is called with other tensors in place of its own, and is left as it was.

    Attributes
    ----------
    module
        without wrappers
    x
        the data, in double precision unless they are integers
    output
        makes the outputs of what the module returns, if it does not return them
    mode
        in which the module is called; its own if None
    parameters
        those that require a gradient, by name, each once, in the order in which the module registered them
    frozen, buffers
        the other parameters and the buffers, by name
    generators
        those of random numbers that the module may draw
    copied
        bytes of the copies in double precision
    """

    module: nn.Module
    x: Tensor
    output: Callable[..., Tensor] | None
    mode: Mode | None
    parameters: Factors
    frozen: Factors
    buffers: Factors
    generators: Generators
    copied: int

    def __call__(self, parameters: Factors, x: Tensor) -> Float[Tensor, "n k"]:
        """Return the outputs on the samples `x` with these in place of some of the parameters."""
        return as_outputs(self.call(self.tensors(parameters), x), len(x))

    def tensors(self, parameters: Factors) -> Factors:
        """Return all that the module holds, with these in place of some of the parameters."""
        buffers = {name: b.clone() for name, b in self.buffers.items()}  # a forward pass may update them
        return {**self.frozen, **self.parameters, **parameters, **buffers}

    def call(self, tensors: Factors, x: Tensor) -> Any:
        """Return the result of the module, or `output` of it; the buffers among `tensors` may change."""
        result = torch.func.functional_call(self.module, tensors, x.clone())  # which may be changed in place
        return result if self.output is None else self.output(result)

    def vjp(self, leaves: Factors, y: Float[Tensor, "n k"], cotangent: Float[Tensor, "n k"]) -> tuple[Tensor, ...]:
        """Return the gradients of weighted outputs by leaves that they were computed from."""
        kept = dict(retain_graph=True, allow_unused=True, materialize_grads=True)
        return torch.autograd.grad(y, list(leaves.values()), cotangent, **kept)

    @contextmanager
    def as_template(self) -> Iterator[None]:
        """Compute in the mode and the precision that are meant; at the end, restore the module and the process."""
        gradients = torch.is_grad_enabled()
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.set_grad_enabled(gradients))  # which leaving inference mode switches on
            stack.enter_context(self.generators.restored())
            stack.enter_context(_restored(self.module))
            stack.enter_context(_double_precision())
            if self.mode is not None:
                self.module.train(self.mode == "train")
            yield


@dataclass(frozen=True)
class Traits:
    """The result of a trial of a function.

    Attributes
    ----------
    outputs
        number k of outputs of a sample
    coupled
        whether the outputs of a sample depend on the other samples of the batch
    vmapped
        whether samples can be differentiated together; otherwise it takes one backward pass for each
    bytes_per_sample
        memory of a forward and a backward pass, for each sample
    backward
        names of the functions that a backward pass goes through
    """

    outputs: int
    coupled: bool
    vmapped: bool
    bytes_per_sample: float
    backward: frozenset[str]


@dataclass(frozen=True, eq=False)
class Network(Traits, Function):
    """A function that has been tried: it has a Jacobian, and its traits are known."""

    def batches(self, memory: float) -> tuple[Tensor, ...]:
        """Return the samples in parts, as many together as a backward pass has GiB for."""
        fits = (memory * GIB - self.copied) / (MARGIN * max(self.bytes_per_sample, 1))
        return self.x.split(len(self.x) if self.coupled else max(int(min(fits, len(self.x))), 1))


@contextmanager
def _restored(module: nn.Module) -> Iterator[None]:
    """Take from modules what changes gradients or the way they are called; at the end, put everything back.

    A forward pass may set attributes (a pruned weight is one), and `functional_call` does not restore the parameters
    of a module that is reachable under two names. So we keep all that `nn.Module` stores: attributes, parameters and
    buffers.
    """
    dictionaries: list[Any] = [d for m in module.modules() for d in (vars(m), m._parameters, m._buffers)]
    kept = [dict(dictionary) for dictionary in dictionaries]
    try:
        for m in module.modules():
            vars(m).update(_backward_hooks={}, _backward_pre_hooks={}, _compiled_call_impl=None)
        yield
    finally:
        for dictionary, entries in zip(dictionaries, kept, strict=True):
            dictionary.clear()
            dictionary.update(entries)


@contextmanager
def _double_precision() -> Iterator[None]:
    """Compute in double precision, by functions that can be differentiated under vmap, and without their warnings."""
    default, fast = torch.get_default_dtype(), torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))  # fused attention has no rule for vmap
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", "There is a performance drop")  # a kernel without a rule, one by one
        warnings.filterwarnings("ignore", "None of the inputs have requires_grad")  # a checkpoint without gradients
        if "torch._dynamo" in sys.modules:  # otherwise nothing is compiled
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(DoublePrecision())
        try:
            torch.backends.mha.set_fastpath_enabled(False)
            torch.set_default_dtype(torch.float64)  # of constants that a forward pass makes
            yield
        finally:
            torch.set_default_dtype(default)
            torch.backends.mha.set_fastpath_enabled(fast)
