"""The outputs of a module as a function of its parameters, in double precision, and their gradients."""

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from gnlib.checks import allowance, as_outputs
from gnlib.jacobian.intercept import DoublePrecision
from gnlib.jacobian.randomness import Generators

GIB = 2**30
STEP = 0.1  # relative size of a perturbation
SHORTER = 1.0, 0.1, 0.01, 1e-3, 1e-4, 0.0  # parts of it that are tried until the parameters are in their domain
PERIOD = 65537  # after which the noise of large weights repeats: drawing takes ten times as long as using it
PERIODS = 16  # that are perturbed at a time
MARGIN = 2  # of the memory that a backward pass is known to take: its temporary tensors are not known

Factors = dict[str, Tensor]
"""A tensor for each parameter, by name."""

Mode = Literal["eval", "train"]


@dataclass(frozen=True, eq=False)
class Function:
    """The outputs of a module on data, as a function of its parameters; nothing is known of it yet.

    The module serves as a template: it is called with other tensors in place of its own, and is left as it was.
    """

    module: nn.Module  # without wrappers
    x: Tensor  # the data, in double precision unless they are integers
    output: Callable[..., Tensor] | None  # makes the outputs of the result of the module, if they are not the same
    mode: Mode | None  # in which the module is called; its own if None
    parameters: Factors  # those that require a gradient, each once, in the order of registration
    frozen: Factors  # the other parameters
    buffers: Factors
    generators: Generators  # of random numbers that the module may draw
    copied: int  # bytes of the copies in double precision
    own: torch.dtype  # precision of the module as it was passed

    def __call__(self, parameters: Factors, x: Tensor) -> Float[Tensor, "n k"]:
        """Return the outputs on the samples `x` with these in place of some of the parameters."""
        return as_outputs(self.call(self.tensors(parameters), x), len(x))

    @torch.inference_mode(False)
    def evaluate(self, parameters: Factors, x: Tensor, call: Any = None) -> Float[Tensor, "n k"]:
        """Return the outputs as a forward pass of training has them: a module may ask whether gradients are wanted."""
        with torch.enable_grad():
            leaves = {name: parameters.get(name, p).detach().requires_grad_() for name, p in self.parameters.items()}
            return (call or self)({**parameters, **leaves}, x).detach()

    @property
    def held(self) -> Factors:
        """All that the module holds."""
        return {**self.frozen, **self.parameters, **self.buffers}

    def tensors(self, parameters: Factors) -> Factors:
        """Return all that the module holds, with these in place of some of the parameters."""
        buffers = {name: b.clone() for name, b in self.buffers.items()}  # a forward pass may update them
        return {**self.held, **parameters, **buffers}

    def call(self, tensors: Factors, x: Tensor) -> Any:
        """Return the result of the module, or `output` of it; the buffers among `tensors` may change."""
        result = torch.func.functional_call(self.module, tensors, x.clone())  # which may be changed in place
        return result if self.output is None else self.output(result)

    def vjp(self, leaves: Factors, y: Float[Tensor, "n k"], cotangent: Float[Tensor, "n k"]) -> tuple[Tensor, ...]:
        """Return the gradients of weighted outputs by leaves that they were computed from."""
        options = dict(retain_graph=True, allow_unused=True, materialize_grads=True)
        return torch.autograd.grad(y, list(leaves.values()), cotangent, **options)

    @contextmanager
    def as_template(self) -> Iterator[DoublePrecision]:
        """Compute in the mode and the precision that are meant; at the end, restore the module and the process."""
        gradients = torch.is_grad_enabled()  # which leaving inference mode would switch on
        with torch.inference_mode(False), torch.set_grad_enabled(gradients):
            with (
                self.generators.restored(),
                _restored(self.module),
                _double_precision(self.x.device, self.own) as precision,
            ):
                if self.mode is not None:
                    self.module.train(self.mode == "train")
                self._place()
                yield precision

    def _place(self) -> None:
        """Put what the module holds here, in double precision, in its own places: where a checkpoint looks for it."""
        module = self.module
        named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
        held = self.tensors({name: p.detach().requires_grad_() for name, p in self.parameters.items()})
        by_tensor = {id(own): held[name] for name, own in named if name in held}
        for m in module.modules():
            for own in (m._parameters, m._buffers):
                own.update({name: by_tensor[id(t)] for name, t in own.items() if id(t) in by_tensor})  # type: ignore[misc]


class Pullback(NamedTuple):
    """Outputs, and gradients of their weighted sum by the parameters."""

    outputs: Float[Tensor, "n k"]
    gradients: Sequence[Tensor]


def pullback(
    function: Function,
    parameters: Factors,
    call: Callable[[Factors], Float[Tensor, "n k"]],
    weights: Float[Tensor, "n k"] | None = None,
) -> Pullback:
    """Return the outputs of a call, and gradients by a plain backward pass; without weights all of them are one."""
    with torch.enable_grad():
        leaves = {name: parameters[name].detach().requires_grad_() for name in function.parameters}
        y = call({**parameters, **leaves})
        if y.requires_grad:
            gradients = function.vjp(leaves, y, torch.ones_like(y) if weights is None else weights)
        else:
            gradients = tuple(torch.zeros_like(leaf) for leaf in leaves.values())
    return Pullback(y.detach(), gradients)


def pullback_together(
    function: Function, parameters: Factors, x: Tensor, weights: Float[Tensor, "b k"]
) -> tuple[Float[Tensor, "b k"], Factors]:
    """Return outputs, and gradients by the parameters for each sample by itself, from one vectorised call."""
    given = {name: parameters[name] for name in function.parameters}

    def one(x: Tensor, weight: Tensor) -> tuple[Tensor, Factors]:
        y, vjp, *_ = torch.func.vjp(lambda p: function({**parameters, **p}, x[None])[0], given)
        return y, vjp(weight)[0]

    with torch.enable_grad():  # or the backward pass of a determinant errs (torch 2.13)
        y, gradients = torch.vmap(one)(x, weights)
    return y, gradients


def weights_of(function: Function, outputs: int) -> Float[Tensor, "1 k"]:
    """Return weights of outputs, the same ones for all samples and at each call."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(1, outputs, generator=generator, dtype=torch.float64, device=generator.device)
    return weights.to(function.x.device)


# Parameters near the given ones, where nothing is hidden by zeros


def move(parameters: Factors, given: Factors, pull: Callable[[], Any]) -> Any:
    """Perturb copies of the given entries and return the result of a call there.

    The perturbation is `STEP`, or as much less as keeps the parameters in their domain, where a call does not fail and
    its outputs are finite: a covariance is positive definite, a probability at most one.
    """
    for part in SHORTER:
        perturb(parameters, given, part * STEP)
        try:
            found = pull()
        except Exception:  # of many types
            if part:
                continue
            raise
        if not part or torch.isfinite(found.outputs).all():
            break
    return found


def perturb(parameters: Factors, given: Factors, step: float) -> None:
    """Perturb copies of the given entries by Gaussian noise of `step` times their size.

    Zeros get noise of `step` times the root mean square of their tensor, since a zero weight hides all that lies
    behind it.
    """
    generator = torch.Generator().manual_seed(0)
    for name, p in given.items():
        if not step:
            parameters[name].copy_(p)
            continue
        noise = torch.randn(min(p.numel(), PERIOD), generator=generator, dtype=p.dtype, device=generator.device)
        noise = noise.mul_(step).to(p.device).repeat(min(-(-p.numel() // PERIOD), PERIODS))
        size = torch.linalg.vector_norm(p).item() / math.sqrt(p.numel()) or 1.0
        for entries, own in zip(
            parameters[name].view(-1).split(len(noise)), p.flatten().split(len(noise)), strict=True
        ):
            sizes = own if own.all() else torch.where(own == 0, size, own)
            torch.addcmul(own, sizes, noise[: len(own)], out=entries)


@dataclass(frozen=True, eq=False)
class Network(Function):
    """A function that has been tried: it has a Jacobian, and its traits are known."""

    outputs: int  # number k of outputs of a sample
    bytes_per_sample: float  # of a forward and a backward pass
    backward: frozenset[str]  # names of the functions that a backward pass goes through
    coupled: bool = False  # whether the outputs of a sample depend on the other samples of the batch
    vmapped: bool = True  # whether samples can be differentiated together; otherwise it takes a backward pass for each
    y: Float[Tensor, "n k"] | None = None  # the outputs with the given parameters; None with others, not tried
    structure: Any = None  # the calls of its layers (a `Structure` of `record`), if they were found in the trial

    @property
    def rows(self) -> int:
        """Number of rows of the Jacobian."""
        return len(self.x) * self.outputs

    @property
    def known(self) -> Float[Tensor, "n k"]:
        """The outputs that the trial had, with the parameters of the trial."""
        assert self.y is not None
        return self.y

    @cached_property
    def allowed(self) -> Float[Tensor, " k"]:
        """How much the outputs may differ from call to call."""
        return allowance(self.known)

    @property
    def units(self) -> int:
        """Number of samples, or one if they are coupled."""
        return 1 if self.coupled else len(self.x)

    def batches(self, memory: float) -> tuple[Tensor, ...]:
        """Return the samples in parts, as many together as a backward pass has GiB for."""
        fits = (memory * GIB - self.copied) / (MARGIN * max(self.bytes_per_sample, 1))
        return self.x.split(len(self.x) if self.coupled else max(int(min(fits, len(self.x))), 1))


def count_rows(networks: Sequence[Network]) -> int:
    """Return the number of rows of the Jacobian of networks, one for each batch."""
    return sum(network.rows for network in networks)


@contextmanager
def _restored(module: nn.Module) -> Iterator[None]:
    """Take hooks on gradients and compiled calls from modules; at the end, put everything back.

    A forward pass may set attributes (a pruned weight is one), and `functional_call` does not restore the parameters
    of a module that is reachable under two names. So we keep all that `nn.Module` stores: attributes, parameters and
    buffers.
    """
    dictionaries: list[Any] = [d for m in module.modules() for d in (vars(m), m._parameters, m._buffers)]
    copies = [dict(dictionary) for dictionary in dictionaries]
    try:
        for m in module.modules():
            vars(m).update(_backward_hooks={}, _backward_pre_hooks={}, _compiled_call_impl=None)
        yield
    finally:
        for dictionary, entries in zip(dictionaries, copies, strict=True):
            dictionary.clear()
            dictionary.update(entries)


@contextmanager
def _double_precision(device: torch.device, own: torch.dtype) -> Iterator[DoublePrecision]:
    """Compute in double precision, by functions that can be differentiated under vmap, and without their warnings."""
    default, fast, finfo = torch.get_default_dtype(), torch.backends.mha.get_fastpath_enabled(), torch.finfo

    def finfo_of_own(dtype: torch.dtype = default) -> torch.finfo:
        return finfo(own if dtype == torch.float64 else dtype)

    # otherwise nothing is compiled
    eager = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
    # fused attention has no rule for vmap
    with sdpa_kernel(SDPBackend.MATH), eager, warnings.catch_warnings(), DoublePrecision(device, own) as precision:
        warnings.filterwarnings("ignore", "There is a performance drop")  # a kernel without a rule, one by one
        warnings.filterwarnings("ignore", "None of the inputs have requires_grad")  # a checkpoint without gradients
        try:
            torch.backends.mha.set_fastpath_enabled(False)
            torch.set_default_dtype(torch.float64)  # of constants that a forward pass makes
            torch.finfo = finfo_of_own  # type: ignore[assignment, misc]  # or `eps` of an input is not that of training
            yield precision
        finally:
            torch.finfo = finfo  # type: ignore[misc]
            torch.set_default_dtype(default)
            torch.backends.mha.set_fastpath_enabled(fast)
