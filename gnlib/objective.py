"""Losses that are functions: computed in double precision, and tried as modules are."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from gnlib.checks import SAME_UP_TO
from gnlib.jacobian.footprint import nodes_of
from gnlib.jacobian.intercept import DOUBLE, DoublePrecision, Downcasts
from gnlib.jacobian.randomness import Generators, PassedGenerators
from gnlib.jacobian.refusals import CLOSE, attributes_of
from gnlib.refused import Refused


class Objective:
    """A loss that is a function of the outputs alone, with given targets, in double precision.

    A module lends its tensors, and is left as it is. Two calls tell whether the loss is random, changes from call to
    call, or depends on parameters that are trained, which nothing that is derived by the outputs knows of.
    """

    def __init__(self, function: Callable[[Tensor, Any], Tensor], targets: Any, outputs: Float[Tensor, "n k"]) -> None:
        if isinstance(function, type) and issubclass(function, nn.Module):
            raise TypeError(f"loss is the class {function.__name__}; pass an instance of it, {function.__name__}().")
        self._function: Callable[..., Any] = function
        self._module = function if isinstance(function, nn.Module) else nn.Module()
        self._targets = tree_map(lambda y: _as_double(y.detach()) if isinstance(y, Tensor) else y, targets)
        self._parameters = {
            name: _as_double(p.detach()).clone().requires_grad_(p.requires_grad)
            for name, p in self._module.named_parameters()
        }
        self._generators = Generators(attributes_of(self._module), outputs.device)
        self._try(outputs)

    def __call__(self, outputs: Float[Tensor, "n k"]) -> Float[Tensor, ""]:
        """Return the loss."""
        with self.in_double(outputs):
            return self._call(outputs, self._tensors())

    def gradient(self, outputs: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        """Return its gradient by the outputs."""
        with self.in_double(outputs), torch.enable_grad():
            leaf = outputs.detach().clone().requires_grad_()
            return torch.autograd.grad(self._call(leaf, self._tensors()), leaf)[0]

    def _call(self, outputs: Float[Tensor, "n k"], tensors: dict[str, Tensor]) -> Float[Tensor, ""]:
        """Return the loss; the buffers among the tensors of its module may change."""
        if isinstance(self._function, nn.Module):
            value = torch.func.functional_call(self._function, tensors, (outputs, self._targets))
        else:
            value = self._function(outputs, self._targets)
        if not isinstance(value, Tensor) or value.numel() != 1:
            got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise NotOneNumberError(f"loss returned {got}; one number was expected: take the mean over the samples.")
        return value.reshape(())

    def _tensors(self) -> dict[str, Tensor]:
        return self._parameters | {name: _as_double(b).clone() for name, b in self._module.named_buffers()}

    @contextmanager
    def in_double(self, outputs: Tensor) -> Iterator[None]:
        """Compute in double precision; at the end, put random numbers back."""
        default, gradients = torch.get_default_dtype(), torch.is_grad_enabled()
        with torch.inference_mode(False), torch.set_grad_enabled(gradients), self._generators.restored():
            with DoublePrecision(outputs.device, torch.float64):
                try:
                    torch.set_default_dtype(torch.float64)  # of constants that a loss makes
                    yield
                finally:
                    torch.set_default_dtype(default)

    def _try(self, outputs: Float[Tensor, "n k"]) -> None:
        """Compare calls, and refuse what is no function of the outputs alone."""
        leaf, tensors = outputs.detach().clone().requires_grad_(), self._tensors()
        with self.in_double(outputs), PassedGenerators() as passed, torch.enable_grad():
            with self._generators.seen():
                value, gradient = self._differentiated(leaf, tensors)
            before, seeds = self._generators.states(), list(passed.states)
            again = self._differentiated(leaf, tensors)
            if self._generators.drawn_from(before) or passed.states != 2 * seeds:
                raise Refused(
                    "wrong-loss",
                    "loss draws random numbers, and a random function has no derivative; draw them once, before the "
                    "call, and pass what they lead to as y.",
                )
            if not (_same(again[0], value) and _same(again[1], gradient)):
                raise Refused(
                    "wrong-loss",
                    "loss changes from call to call with the same outputs and targets; keep what it changes (a buffer, "
                    "a counter, a schedule) as it is.",
                )
            with Downcasts() as downcasts:  # while operations are recorded, scripts run as Python
                recorded, _ = self._differentiated(leaf, tensors)
        if downcasts.operations or not _same(recorded, value, CLOSE):
            lower = ", ".join(f"{name} returns {dtype}" for name, dtype in downcasts.operations.items())
            raise Refused(
                "low-precision",
                f"loss computes in a lower precision than double where it cannot be changed ({lower or 'a script'}); "
                "write that part so that it takes the dtype of the outputs.",
            )
        self._check_parameters(value, leaf)

    def _differentiated(self, leaf: Tensor, tensors: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the loss and its gradient by the outputs, or say why there are none."""
        try:
            value = self._call(leaf, tensors)
        except NotOneNumberError:
            raise
        except Exception as error:
            raise Refused(
                "wrong-loss",
                f"loss fails on outputs of shape {tuple(leaf.shape)}, in double precision, with y "
                f"{_described(self._targets)}: {error}",
            ) from error
        gradient = None
        if value.requires_grad:
            (gradient,) = torch.autograd.grad(value, leaf, retain_graph=True, allow_unused=True)
        if gradient is None:
            raise Refused(
                "wrong-loss",
                "loss does not depend on the outputs in a way that can be differentiated; an argmax, detach(), item() "
                "or torch.no_grad() hides them.",
            )
        return value, gradient

    def _check_parameters(self, value: Tensor, leaf: Tensor) -> None:
        """Refuse a loss of which a backward pass reaches other leaves than the outputs."""
        own = {id(p): name for name, p in self._parameters.items()}
        leaves = [node.variable for node in nodes_of(value) if hasattr(node, "variable")]
        others = [own.get(id(p), f"a tensor of shape {tuple(p.shape)}") for p in leaves if p is not leaf]
        if others:
            raise Refused(
                "wrong-loss",
                f"loss depends on {' and '.join(sorted(others)[:2])} beside the outputs, which curvature and forecasts "
                "leave out; for weight decay pass optimizer=torch.optim.SGD(..., weight_decay=...), and make what a "
                "loss learns a part of the module, or freeze it with requires_grad_(False).",
            )


class NotOneNumberError(Refused):
    """A loss returned something else than one number."""

    def __init__(self, sentence: str) -> None:
        super().__init__("wrong-loss", sentence)


def _as_double(value: Any) -> Any:
    return value.to(DOUBLE[value.dtype]) if isinstance(value, Tensor) and value.dtype in DOUBLE else value


def _same(a: Tensor, b: Tensor, tolerance: float = SAME_UP_TO) -> bool:
    return torch.allclose(a, b, tolerance, tolerance * b.detach().abs().amax().item(), equal_nan=True)


def _described(targets: Any) -> str:
    if isinstance(targets, Tensor):
        return f"of shape {tuple(targets.shape)} and {targets.dtype}"
    return f"of type {type(targets).__name__}"
