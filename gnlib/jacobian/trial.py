"""Make the networks of a module: copies in double precision, tried on all samples.

A trial finds out whether the outputs are a function, and one of each sample by itself, by calls with the given
parameters and with others near them: a head of zeros has the same outputs for all layers below it, while its
derivative shows them all.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnlib.checks import agree, as_float64
from gnlib.jacobian.intercept import ConstantUniform, Generators, PassedGenerators
from gnlib.jacobian.network import GIB, Factors, Function, Mode, Network, Traits
from gnlib.jacobian.refusals import FIRST, attempt, call_first, check_mode, check_module, check_outputs, unchanged

STEPS = 0.01, 0.1  # relative sizes of the perturbations
PERIOD = 65537  # after which the noise of large weights repeats: drawing takes ten times as long as using it
WORKING = 2**25  # bytes that calls on a few samples take; twice as fast as with memory that is new at each call
WRAPPERS = nn.DataParallel, nn.parallel.DistributedDataParallel
RANDOM = "The outputs change from call to call: a random function has no Jacobian; fix its noise"


@torch.inference_mode(False)
def network_of(
    module: nn.Module,
    x: Tensor,
    output: Callable[..., Tensor] | None = None,
    mode: Mode | None = None,
    memory: float = 4.0,
) -> Network:
    """Return the network of a module on one batch of samples."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"module is of type {type(module).__name__}; pass a torch.nn.Module.")
    if mode not in ("eval", "train", None):
        raise ValueError(f"mode is {mode!r}; it must be 'eval', 'train' or None.")
    while (wrapped := getattr(module, "module" if isinstance(module, WRAPPERS) else "_orig_mod", None)) is not None:
        module = wrapped  # spread over devices, or compiled
    named = dict(module.named_parameters())
    check_module(module, named)
    devices = {p.device for p in named.values()}
    if isinstance(x, Tensor) and devices and x.device not in devices:
        raise ValueError(f"x is on {x.device} but the module on {devices.pop()}; move one of them.")
    samples = _as_double(x, "x")
    if not samples.ndim:
        raise ValueError("x has shape (); the first axis of x must count samples.")
    double = {name: _as_double(p, f"The parameter {name}") for name, p in named.items()}
    buffers = {name: b.to(torch.float64) if b.is_floating_point() else b for name, b in module.named_buffers()}
    pairs = [(samples, x), *((double[name], p) for name, p in named.items())]
    copied = sum(8 * copy.numel() for copy, original in pairs if copy.data_ptr() != original.data_ptr())
    function = Function(
        module=module,
        x=samples,
        output=output,
        mode=mode,
        parameters={name: p for name, p in double.items() if named[name].requires_grad},
        frozen={name: p for name, p in double.items() if not named[name].requires_grad},
        buffers=buffers,
        generators=Generators((value for m in module.modules() for value in vars(m).values()), samples.device),
        copied=copied + 2 * sum(b.nbytes for b in buffers.values()),
    )
    return Network(**vars(function), **vars(try_function(function, memory)))


def _as_double(tensor: Tensor, name: str) -> Tensor:
    """Return a tensor in double precision, but integers, such as the numbers of tokens, as they are."""
    double = as_float64(tensor, name)
    if not tensor.is_floating_point():
        double = tensor.detach()
    return double.clone() if double.is_inference() else double  # which automatic differentiation cannot take


@torch.inference_mode(False)
@torch.no_grad()
def try_function(function: Function, memory: float) -> Traits:
    """Try a function on all samples; refuse one that has no Jacobian, or more than one.

    Calls on many samples take at most `memory` GiB; samples that do not fit are tried in parts.
    """
    n = len(function.x)
    parameters = {
        name: p.clone(memory_format=torch.contiguous_format)
        for name, p in {**function.frozen, **function.parameters}.items()
    }
    with PassedGenerators() as passed:
        with function.as_template():
            coupled = check_mode(function)
            outputs, size, backward = call_first(function, parameters)
            perturb(parameters, function, STEPS[0])
            start = function(parameters, function.x[:FIRST])
        # without a backward pass it takes less
        fits = n if coupled else max(int((memory * GIB - function.copied) / max(size, 1)), FIRST)
        trial = _Trial(function, min(fits, n), max(int(WORKING / max(size, 1)), FIRST), passed)
        # as a template anew: traces of the first calls in the module must not hide that it is random
        with function.as_template():
            function.generators.advance()
            trial.check_first(parameters, start)
            vmapped = not coupled and can_vmap(function)
            if coupled:
                perturb(parameters, function, STEPS[1])
                trial.check_same(trial.call_all(parameters), trial.call_all(parameters))
            elif n > 1:
                coupled = trial.are_coupled(parameters, vmapped)
    return Traits(outputs, coupled, vmapped and not coupled, size, backward)


def perturb(parameters: Factors, function: Function, step: float) -> None:
    """Perturb copies of all trainable entries by Gaussian noise of `step` times their size.

    Zeros get noise of `step` times the root mean square of their tensor, since a zero weight hides all that lies
    behind it.
    """
    generator = torch.Generator().manual_seed(round(1000 * step))
    for name, p in function.parameters.items():
        copy = parameters[name].copy_(p)
        if step:
            noise = torch.randn(min(p.numel(), PERIOD), generator=generator, dtype=p.dtype, device=generator.device)
            noise = noise.mul_(step).to(p.device)
            size = torch.linalg.vector_norm(p).item() / math.sqrt(p.numel()) or 1.0
            for entries, given in zip(copy.view(-1).split(PERIOD), p.flatten().split(PERIOD), strict=True):
                entries.addcmul_(torch.where(given == 0, size, given), noise[: len(given)])


def can_vmap(function: Function) -> bool:
    """Say whether samples can be differentiated together."""

    def gradients(x: Tensor) -> Any:
        y, vjp, *_ = torch.func.vjp(lambda p: function(p, x[None]), function.parameters)
        return vjp(torch.ones_like(y))[0]

    try:
        torch.vmap(gradients)(function.x[:1])
    except Exception:  # in-place operations, control flow that depends on data, kernels without a rule: many types
        return False
    return True


class _Trial:
    """Calls of a function on many samples, in each of which random numbers are refused.

    All samples go together, or in parts as large as fit; for comparison in pieces, as small as is fast.
    """

    def __init__(self, function: Function, part: int, piece: int, passed: PassedGenerators) -> None:
        self._function, self._part, self._piece, self._passed = function, part, min(part, piece), passed

    def check_first(self, parameters: Factors, start: Tensor) -> None:
        """Refuse, on the first samples, a function that is random, loses digits or changes from call to call."""
        function, first, states = self._function, self._function.x[:FIRST], self._passed.states
        states.clear()
        once = function(parameters, first)  # a number that is drawn or seeded once is so now
        passed = list(states)
        y = self._refuse_random(lambda: function(parameters, first))
        if states[: 2 * len(passed)] != 2 * passed:
            raise ValueError(self._message)
        self.check_same(y, once)
        self.check_same(y, start)
        check_outputs(function, parameters, y)

    def check_same(self, y: Tensor, again: Tensor) -> None:
        """Refuse outputs that are not the same twice."""
        if not agree(y, again):
            raise ValueError(self._message)

    def are_coupled(self, parameters: Factors, vmapped: bool) -> bool:
        """Say whether the outputs of a sample depend on the other samples; refuse it unless it is meant.

        All samples at once are compared with samples in other company, near the given parameters: shuffled in small
        pieces, then one by one.
        """
        function, n = self._function, len(self._function.x)
        generator = torch.Generator().manual_seed(0)
        order = torch.randperm(n, generator=generator, device=generator.device).to(function.x.device)
        ways: list[tuple[float, Callable[[Factors], Tensor]]] = [
            (0.0, lambda p: self._call_shuffled(p, order)),
            (STEPS[1], lambda p: self._call_one_by_one(p, vmapped)),
        ]
        for step, call in ways:
            perturb(parameters, function, step)
            together, apart = self.call_all(parameters), None
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # such as that one sample has no standard deviation
                    apart = call(parameters)
            except Exception as error:
                if function.mode != "train":
                    raise ValueError(
                        f"module fails on fewer samples, though not on all {n} of x: {error} (A squeeze() drops the "
                        "axis of the samples where there is one; name the axis. If the outputs of a sample are meant "
                        "to depend on the others, pass mode='train'.)"
                    ) from error
            if apart is None or not agree(apart, together):
                self.check_same(self.call_all(parameters), together)
                if function.mode != "train":
                    raise ValueError(
                        "The outputs of a sample depend on the other samples of the batch. If the first axis of x does "
                        "not count samples, transpose it; if this is meant, pass mode='train'."
                    )
                return True
        return False

    def call_all(self, parameters: Factors) -> Float[Tensor, "n k"]:
        """Return the outputs on all samples, together if they fit."""
        with unchanged(parameters):
            return torch.cat([self._call(parameters, x) for x in self._function.x.split(self._part)])

    def _call_shuffled(self, parameters: Factors, order: Tensor) -> Float[Tensor, "n k"]:
        pieces = order.tensor_split(max(2, math.ceil(len(order) / self._piece)))
        y = torch.cat([self._call(parameters, self._function.x[piece]) for piece in pieces])
        return torch.empty_like(y).index_copy_(0, order, y)

    def _call_one_by_one(self, parameters: Factors, vmapped: bool) -> Float[Tensor, "n k"]:
        function, x = self._function, self._function.x
        if vmapped:
            return torch.vmap(lambda one: function(parameters, one[None])[0], chunk_size=self._piece)(x)
        return torch.cat([function(parameters, one) for one in x.split(1)])

    def _call(self, parameters: Factors, x: Tensor) -> Float[Tensor, "m k"]:
        return self._refuse_random(lambda: attempt(self._function, parameters, x, f"{len(x)} samples of x"))

    def _refuse_random(self, call: Callable[[], Tensor]) -> Tensor:
        """Return the outputs of a call; refuse random numbers in it, unless they turn out not to matter.

        They do not matter if the outputs are the same with other uniform numbers, and no others are drawn.
        """
        generators = self._function.generators
        before = generators.states()
        y = call()
        if generators.drawn_from(before):
            outputs = []
            for number in (0.0, 0.5, 1 - torch.finfo(torch.float64).eps):
                before = generators.states()
                with ConstantUniform(generators, number):
                    outputs.append(call())
                if generators.drawn_from(before) or not agree(outputs[-1], outputs[0]):
                    raise ValueError(self._message)
        return y

    @property
    def _message(self) -> str:
        training = self._function.mode is None and any(m.training for m in self._function.module.modules())
        return RANDOM + (", or pass mode='eval' if it belongs to training." if training else ".")
