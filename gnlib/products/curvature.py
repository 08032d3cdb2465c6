r"""Losses of outputs of any shape, batch by batch, and the products with their second derivative.

A loss is here :math:`\frac1N \sum_t \ell_t`, with N the number of samples, or for the cross-entropy that of the tokens
that count, each times the weight of its class. What a batch adds to the sum is known by itself, so that batches of any
size make the same whole.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnlib.eigen.quadrature import Lanczos
from gnlib.refused import Refused

CONVEX = 1e-4  # relative size up to which a curvature below zero, or what samples do to each other, is rounding
TRIED = 4  # products with the second derivative of a loss, which tell whether it is convex

Outputs = Float[Tensor, "n *k"]


class Curvature:
    """The sum of a loss over a batch, with its derivatives by the outputs, as functions of outputs and targets."""

    name: str
    weight: Callable[[Outputs, Any], float]  # what the batch adds to N
    value: Callable[[Outputs, Any], float]  # the sum of the losses
    gradient: Callable[[Outputs, Any], Outputs]  # of that sum
    product: Callable[[Outputs, Any, Outputs], Outputs]  # of the second derivative H with the last argument


class Rooted(Curvature):
    r"""A loss whose second derivative has a root that is known, :math:`H = R R^\top`, square for each sample."""

    root: Callable[[Outputs, Any, Outputs], Outputs]  # the product of R with the last argument
    root_t: Callable[[Outputs, Any, Outputs], Outputs]  # and that of its transpose
    residual: Callable[[Outputs, Any], Outputs]  # the shortest u with R u the gradient, in double precision

    def product(self, outputs: Outputs, targets: Any, v: Outputs) -> Outputs:  # noqa: D102
        return self.root(outputs, targets, self.root_t(outputs, targets, v))


class SquaredError(Rooted):
    r"""Half the squared distance from the targets, :math:`\ell_i = \frac12 \lVert f_i - y_i \rVert^2`."""

    name = "mse"

    def weight(self, outputs: Outputs, targets: Any) -> float:  # noqa: D102
        return len(outputs)

    def value(self, outputs: Outputs, targets: Any) -> float:  # noqa: D102
        return self.residual(outputs, targets).square().sum().item() / 2

    def gradient(self, outputs: Outputs, targets: Any) -> Outputs:  # noqa: D102
        return self.residual(outputs, targets).to(outputs.dtype)

    def root(self, outputs: Outputs, targets: Any, v: Outputs) -> Outputs:  # noqa: D102
        return v

    root_t = root

    def residual(self, outputs: Outputs, targets: Any) -> Outputs:  # noqa: D102
        if targets is None:
            raise Refused("no-targets", "y is missing; a gradient, and what training waits for, need targets.")
        if not isinstance(targets, Tensor) or targets.shape != outputs.shape:
            got = f"shape {tuple(targets.shape)}" if isinstance(targets, Tensor) else f"type {type(targets).__name__}"
            expected = f"the outputs are of shape {tuple(outputs.shape)}; give one the other's."
            raise Refused("wrong-targets", f"y is of {got}, {expected}")
        return outputs.double() - targets.double()


class CrossEntropy(Rooted):
    r"""Cross-entropy of the softmax over the classes, of each sample or token: :math:`-\sum_c q_c \log p_c`.

    The q are the targets, times the weights of the classes, smoothed, and zero for a token that is ignored. With W
    their sum, :math:`H = W (\operatorname{diag}(p) - p p^\top) = R R^\top` for
    :math:`R = \sqrt W \operatorname{diag}(s) (I - s s^\top)`, :math:`s = \sqrt p`: no matrix of classes is formed. The
    settings are those of `nn.CrossEntropyLoss`, which averages over the weights of the tokens that count.
    """

    name = "cross_entropy"

    def __init__(self, settings: nn.CrossEntropyLoss | None = None) -> None:
        self._settings = settings or nn.CrossEntropyLoss()
        self._classes_first = settings is not None  # as torch has it
        if self._settings.reduction != "mean":
            raise Refused("wrong-loss", f"loss has reduction={self._settings.reduction!r}; 'mean' was expected.")

    def weight(self, outputs: Outputs, targets: Any) -> float:  # noqa: D102
        if targets is None:
            return outputs[..., 0].numel()
        axis = self._axis(outputs, targets)
        if targets.is_floating_point():
            if (least := float(targets.min())) < 0:
                raise Refused("wrong-targets", f"y has the probability {least:.3g}; none below 0 was expected.")
            return targets.numel() / targets.shape[axis]
        counted, label = self._labels(targets, outputs.shape[axis])
        weights = self._of_classes(outputs, axis)[label] if self._settings.weight is not None else 1.0
        return float((counted * weights).sum(dtype=torch.float64))

    def value(self, outputs: Outputs, targets: Any) -> float:  # noqa: D102
        logs, q, _ = self._parts(outputs.double(), targets)
        return -float((q * logs).sum())

    def gradient(self, outputs: Outputs, targets: Any) -> Outputs:  # noqa: D102
        logs, q, axis = self._parts(outputs, targets)
        return (q.sum(-1, keepdim=True) * logs.exp() - q).movedim(-1, axis)

    def root(self, outputs: Outputs, targets: Any, v: Outputs) -> Outputs:  # noqa: D102
        s, size, axis = self._unit(outputs, targets)
        v = v.movedim(axis, -1)
        return (size * s * (v - s * (s * v).sum(-1, keepdim=True))).movedim(-1, axis)

    def root_t(self, outputs: Outputs, targets: Any, v: Outputs) -> Outputs:  # noqa: D102
        s, size, axis = self._unit(outputs, targets)
        w = size * s * v.movedim(axis, -1)
        return (w - s * (s * w).sum(-1, keepdim=True)).movedim(-1, axis)

    def product(self, outputs: Outputs, targets: Any, v: Outputs) -> Outputs:  # noqa: D102
        s, size, axis = self._unit(outputs, targets)
        v, p = v.movedim(axis, -1), s * s
        return (size * size * p * (v - (p * v).sum(-1, keepdim=True))).movedim(-1, axis)

    def residual(self, outputs: Outputs, targets: Any) -> Outputs:  # noqa: D102
        logs, q, axis = self._parts(outputs.double(), targets)
        size = q.sum(-1, keepdim=True).sqrt()
        u = size * (logs / 2).exp() - torch.where(q > 0, q / size.clamp_min(1e-300) * (-logs / 2).exp(), 0.0)
        return u.movedim(-1, axis)

    def _axis(self, outputs: Outputs, targets: Any) -> int:
        """Return the axis of the classes: of torch's own loss the second one where that is possible, else the last."""
        if not isinstance(targets, Tensor):
            raise TypeError(f"y is of type {type(targets).__name__}; a tensor of classes or probabilities is needed.")
        shape, of = targets.shape, outputs.shape
        if targets.is_floating_point():
            if shape == of:
                return 1 if self._classes_first else -1
        elif self._classes_first and shape == of[:1] + of[2:]:
            return 1
        elif shape == of[:-1]:
            return -1
        expected = f"integers of shape {tuple(of[:-1])}, or probabilities of that of the outputs, were expected."
        found = f"y has shape {tuple(shape)} and type {targets.dtype}, the outputs have shape {tuple(of)}"
        raise Refused("wrong-targets", f"{found}; {expected}")

    def _of_classes(self, outputs: Outputs, axis: int) -> Float[Tensor, " c"]:
        """Return the weights of the classes."""
        weight = self._settings.weight
        return outputs.new_ones(outputs.shape[axis]) if weight is None else weight.to(outputs)

    def _parts(self, outputs: Outputs, targets: Any) -> tuple[Outputs, Outputs, int]:
        """Return log p and q, with the classes last, and the axis that they have in the outputs."""
        if targets is None:
            raise Refused("no-targets", "y is missing; a gradient, and what training waits for, need targets.")
        axis, smoothing = self._axis(outputs, targets), self._settings.label_smoothing
        logs, weights = outputs.movedim(axis, -1).log_softmax(-1), self._of_classes(outputs, axis)
        if targets.is_floating_point():
            q = targets.to(outputs).movedim(axis, -1)
            return logs, weights * ((1 - smoothing) * q + smoothing / len(weights)), axis
        counted, label = (each[..., None] for each in self._labels(targets, len(weights)))
        q = torch.zeros_like(logs).scatter_(-1, label, (1 - smoothing) * weights[label])
        return logs, (q + smoothing / len(weights) * weights) * counted, axis

    def _labels(self, targets: Tensor, classes: int) -> tuple[Tensor, Tensor]:
        """Return which targets count, and their classes, 0 for those that do not."""
        counted = targets != self._settings.ignore_index
        label = torch.where(counted, targets, 0).long()
        if label.numel() and not (0 <= int(label.min()) and int(label.max()) < classes):
            found = f"{int(label.min())} to {int(label.max())}"
            raise Refused("wrong-targets", f"y has classes from {found}; 0 to {classes - 1} were expected.")
        return counted, label

    def _unit(self, outputs: Outputs, targets: Any) -> tuple[Outputs, Outputs, int]:
        """Return the root of p, that of W, and the axis of the classes; without targets all tokens count alike."""
        if targets is None:
            return (outputs.log_softmax(-1) / 2).exp(), torch.ones_like(outputs[..., :1]), -1
        logs, q, axis = self._parts(outputs, targets)
        return (logs / 2).exp(), q.sum(-1, keepdim=True).sqrt(), axis


class Own(Curvature):
    """A function of outputs and targets that returns the mean of the losses of the samples, by autograd."""

    def __init__(self, function: Callable[[Tensor, Any], Tensor]) -> None:
        self._function, self.name = function, getattr(function, "__name__", type(function).__name__)

    def weight(self, outputs: Outputs, targets: Any) -> float:  # noqa: D102
        return len(outputs)

    def value(self, outputs: Outputs, targets: Any) -> float:  # noqa: D102
        return len(outputs) * float(self._function(outputs, targets))

    @torch.enable_grad()
    def gradient(self, outputs: Outputs, targets: Any) -> Outputs:  # noqa: D102
        leaf = outputs.detach().requires_grad_()
        return torch.autograd.grad(self._sum(leaf, targets), leaf)[0]

    @torch.enable_grad()
    def product(self, outputs: Outputs, targets: Any, v: Outputs) -> Outputs:  # noqa: D102
        leaf = outputs.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(self._sum(leaf, targets), leaf, create_graph=True)
        if not gradient.requires_grad:
            return torch.zeros_like(v)
        return torch.autograd.grad(gradient, leaf, v, materialize_grads=True)[0]

    def check(self, outputs: Outputs, targets: Any) -> None:
        """Refuse a loss that is no mean over the samples, as far as two of them tell."""
        v = _random(outputs).to(outputs)
        product = self.product(outputs, targets, v)
        if len(outputs) > 1 and isinstance(targets, Tensor) and len(targets) == len(outputs):
            parts = zip(outputs.split(1), targets.split(1), v.split(1), strict=True)
            apart = torch.cat([self.product(*part) for part in parts])
            if float((apart - product).abs().max()) > CONVEX * float(product.abs().max()):
                what = "what one adds depends on the others; a mean of losses of single samples was expected."
                raise Refused("wrong-loss", f"loss {self.name} is no mean over the samples: {what}")

    def is_curved(self, outputs: Outputs, targets: Any) -> bool:
        """Whether there is a second derivative; refuse one with a negative eigenvalue, as far as few products tell."""

        def product(v: Tensor) -> Tensor:
            of = self.product(outputs, targets, v.view(outputs.shape).to(outputs))
            return of.flatten().double().clone()  # torch may return zeros that cannot be written to

        process = Lanczos(product, _random(outputs).flatten())
        for _ in range(TRIED):
            process.step()
        values, _ = process.ritz()
        largest = float(abs(values).max())
        if values[-1] < -max(CONVEX, 10 * torch.finfo(outputs.dtype).eps) * largest:
            raise Refused(
                "not-convex",
                f"loss {self.name} has a negative second derivative by the outputs, {values[-1]:.2g} beside "
                f"{max(values[0], 0):.2g}: J^T H J is then the Hessian of the linearised network, of which no stable "
                "rate or number of steps follows; pass a loss that is convex in the outputs.",
            )
        return largest > 0

    def _sum(self, outputs: Outputs, targets: Any) -> Tensor:
        value = self._function(outputs, targets)
        if not isinstance(value, Tensor) or value.numel() != 1:
            got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise Refused("wrong-loss", f"loss returned {got}; one number was expected: the mean over the samples.")
        return len(outputs) * value.reshape(())


def _random(outputs: Outputs) -> Outputs:
    v = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return v.to(outputs.device)


def curvature_of(loss: str | Callable[[Tensor, Any], Tensor]) -> Curvature:
    """Return a loss by its name, or the function itself."""
    if loss == "mse":
        return SquaredError()
    if loss == "cross_entropy":
        return CrossEntropy()
    if isinstance(loss, nn.CrossEntropyLoss):
        return CrossEntropy(loss)
    if callable(loss) and not isinstance(loss, type):
        return Own(loss)
    expected = "'mse', 'cross_entropy' or a function of outputs and targets was expected."
    raise Refused("wrong-loss", f"loss is {loss!r}; {expected}")
