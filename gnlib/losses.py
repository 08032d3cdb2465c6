"""Losses as functions of the outputs: their value, gradient, and a thin root of their second derivative."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from gnlib.checks import EPS, as_float64
from gnlib.objective import Objective
from gnlib.refused import Refused

SUMS = 1e-6  # by how much the probabilities of a sample may miss one: single precision
CONVEX = 1e-9  # share of the largest curvature below which a negative one counts as rounding


class Loss(ABC):
    r"""The mean over the samples of a loss of each, :math:`L(f) = \frac1n \sum_i \ell_i(f_i)`, with given targets.

    Its derivatives are those of the :math:`\ell_i`, without the factor `1 / n`, which the Gram matrix of a network
    carries already: the gradient by the parameters is :math:`\frac1n J^\top g`, the generalised Gauss-Newton matrix
    :math:`\frac1n J^\top R R^\top J`, with `R` block-diagonal.
    """

    name: str

    def __init__(self, targets: Any) -> None:
        self._targets = targets

    @abstractmethod
    def value(self, outputs: Float[Tensor, "n k"]) -> float:
        """Return the loss of these outputs, the mean over the samples."""

    @abstractmethod
    def gradient(self, outputs: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        """Return the gradient of the loss of each sample by its outputs."""

    @abstractmethod
    def root(self, outputs: Float[Tensor, "n k"]) -> Float[Tensor, "n k r"]:
        """Return for each sample an R, with as few columns as there can be, whose `R R^T` is the second derivative."""


class SquaredError(Loss):
    r"""Half the squared distance from the targets, :math:`\ell_i = \frac12 \lVert f_i - y_i \rVert^2`."""

    name = "mse"

    def value(self, outputs: Float[Tensor, "n k"]) -> float:  # noqa: D102
        return (outputs - _given(self._targets)).square().sum().item() / (2 * len(outputs))

    def gradient(self, outputs: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:  # noqa: D102
        return outputs - _given(self._targets)

    def root(self, outputs: Float[Tensor, "n k"]) -> Float[Tensor, "n k k"]:  # noqa: D102
        n, k = outputs.shape
        return torch.eye(k, dtype=outputs.dtype, device=outputs.device).expand(n, k, k)


class CrossEntropy(Loss):
    r"""Cross-entropy of the softmax of the outputs, :math:`\ell_i = -\sum_a y_{ia} \log p_{ia}`.

    The second derivative :math:`\operatorname{diag}(p) - p p^\top` does not depend on the targets. With
    :math:`s = \sqrt p`, a unit vector, it is :math:`\operatorname{diag}(s) (I - s s^\top) \operatorname{diag}(s)`. The
    reflection that takes s to :math:`-e_j` has in its other `k - 1` columns an orthonormal basis of what is orthogonal
    to s, and with j the likeliest class no entry of it loses digits, however sure the network is.
    """

    name = "cross_entropy"

    def value(self, outputs: Float[Tensor, "n k"]) -> float:  # noqa: D102
        return -(_given(self._targets) * outputs.log_softmax(1)).sum().item() / len(outputs)

    def gradient(self, outputs: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:  # noqa: D102
        return outputs.softmax(1) - _given(self._targets)

    def root(self, outputs: Float[Tensor, "n k"]) -> Float[Tensor, "n k r"]:  # noqa: D102
        n, k = outputs.shape
        s = (outputs.log_softmax(1) / 2).exp()
        likeliest = s.argmax(1, keepdim=True)
        v = s.scatter_add(1, likeliest, torch.ones_like(s))
        identity = torch.eye(k, dtype=s.dtype, device=s.device)
        reflection = identity - v[:, :, None] * v[:, None] / (1 + s.amax(1))[:, None, None]
        others = torch.arange(k - 1, device=s.device).expand(n, -1)
        others = others + (others >= likeliest)
        return s[:, :, None] * reflection.gather(2, others[:, None].expand(-1, k, -1))


class OwnLoss(Loss):
    """A function of all outputs and targets, tried at given outputs, by automatic differentiation."""

    def __init__(self, function: Callable[[Tensor, Any], Tensor], targets: Any, outputs: Float[Tensor, "n k"]) -> None:
        self._objective = Objective(function, targets, outputs)
        self.name = getattr(function, "__name__", type(function).__name__)

    def value(self, outputs: Float[Tensor, "n k"]) -> float:  # noqa: D102
        return self._objective(outputs).item()

    def gradient(self, outputs: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:  # noqa: D102
        return self._objective.gradient(outputs) * len(outputs)

    def root(self, outputs: Float[Tensor, "n k"]) -> Float[Tensor, "n k r"]:  # noqa: D102
        values, vectors = torch.linalg.eigh(self._second_derivative(outputs))
        largest = values.abs().amax()
        if values.amin() < -CONVEX * largest:
            raise Refused(
                "not-convex",
                f"loss has a second derivative by the outputs of {values.amin():.2g}; a loss that is convex in the "
                "outputs was expected, for which the generalised Gauss-Newton matrix has no negative eigenvalue.",
            )
        rank = int((values > values.shape[1] * EPS * largest).sum(1).amax())
        if not rank:
            raise Refused(
                "no-curvature",
                "loss has no second derivative by the outputs (it is 0 at all of them, as for the absolute error), and "
                "its Gauss-Newton matrix is 0; pass a loss with curvature, such as the squared error or a Huber loss; "
                "for NLLLoss of log-probabilities 'cross_entropy', which has the same value and gradient by "
                "parameters.",
            )
        return vectors[:, :, -rank:] * values[:, None, -rank:].clamp_min(0).sqrt()

    def _second_derivative(self, outputs: Float[Tensor, "n k"]) -> Float[Tensor, "n k k"]:
        """Return the second derivative of each sample, from one product for each output with all samples at once."""
        n = len(outputs)
        weights = torch.ones_like(outputs[:, 0])
        products = self._products(outputs, weights)
        if n > 1:  # products that mix samples would change with the weights of the samples
            generator = torch.Generator().manual_seed(0)
            weights = (1 + torch.rand(n, generator=generator, dtype=torch.float64)).to(outputs)
            again = self._products(outputs, weights) / weights[:, None, None]
            if (again - products).abs().max() > CONVEX * products.abs().max():
                raise Refused(
                    "wrong-loss",
                    "loss is no sum over the samples: the derivative by the outputs of one depends on those of "
                    "another; a mean of losses of single samples was expected.",
                )
        return (products + products.mT) / 2 * n

    def _products(self, outputs: Float[Tensor, "n k"], weights: Float[Tensor, " n"]) -> Float[Tensor, "n k k"]:
        leaf = outputs.detach().clone().requires_grad_()
        columns = []
        with self._objective.in_double(outputs), torch.enable_grad():
            try:
                (gradient,) = torch.autograd.grad(self._objective(leaf), leaf, create_graph=True)
                for a in range(leaf.shape[1]):
                    column = torch.zeros_like(leaf)
                    if gradient.requires_grad:
                        product = (gradient[:, a] * weights).sum()
                        (column,) = torch.autograd.grad(product, leaf, retain_graph=True, materialize_grads=True)
                    columns.append(column)
            except (RuntimeError, NotImplementedError) as error:
                raise Refused(
                    "wrong-loss",
                    f"loss cannot be differentiated twice by the outputs: {str(error).splitlines()[0]} Write it in "
                    "functions of torch that have second derivatives.",
                ) from error
        products = torch.stack(columns, 2)
        if not torch.isfinite(products).all():
            raise Refused(
                "not-finite", "loss has a second derivative by the outputs that is NaN or infinite at these outputs."
            )
        return products


def loss_of(loss: str | Callable[[Tensor, Any], Tensor], y: Any, outputs: Float[Tensor, "n k"]) -> Loss:
    r"""Return a loss with its targets, after checking them against the outputs of a network.

    Parameters
    ----------
    loss
        `"mse"`, :math:`\frac1{2n} \sum_i \lVert f_i - y_i \rVert^2` (of which `nn.MSELoss()` is `2 / k` times);
        `"cross_entropy"` of the softmax, the mean over the samples; or a function of outputs and targets that returns
        one number, convex in the outputs and a mean over the samples, such as `nn.CrossEntropyLoss(weight=...)`
    y
        the targets: numbers `(n, k)` for the squared error; for either, class indices `(n,)`, one-hot or
        probabilities `(n, k)`; for a function its second argument. None where only the second derivative is asked for,
        which for the first two does not depend on them
    outputs
        `(n, k)`, of the network, on the same samples

    Raises
    ------
    TypeError
        A loss that is neither a name nor a function, or a class, targets that are no tensor, class indices that are no
        integers.
    ValueError
        A name that is not known, targets of another shape, not finite, classes out of range, or probabilities that are
        negative or do not add up to 1; no targets for a function; a function that is random, changes from call to call,
        has no derivative by the outputs, or depends on parameters beside them.

    References
    ----------
    N. N. Schraudolph (2002), Fast curvature matrix-vector products for second-order gradient descent, Neural
    Computation 14 (the generalised Gauss-Newton matrix).

    Examples
    --------
    >>> import torch
    >>> outputs = torch.tensor([[0.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
    >>> loss = loss_of("cross_entropy", torch.tensor([0, 1]), outputs)
    >>> round(loss.value(outputs), 4)
    1.41
    >>> root = loss.root(outputs)
    >>> root.shape, (root @ root.mT)[0]
    (torch.Size([2, 2, 1]), tensor([[ 0.2500, -0.2500],
            [-0.2500,  0.2500]], dtype=torch.float64))
    """
    if callable(loss):
        if y is None:
            raise Refused("no-targets", "y is missing; a loss that is a function needs its targets.")
        return OwnLoss(loss, y, outputs)
    if not isinstance(loss, str):
        raise TypeError(
            f"loss is of type {type(loss).__name__}; 'mse', 'cross_entropy' or a function of outputs and targets was "
            "expected."
        )
    if loss not in ("mse", "cross_entropy"):
        raise Refused(
            "wrong-loss", f"loss is {loss!r}; 'mse', 'cross_entropy' or a function of outputs and targets was expected."
        )
    if loss == "mse":
        return SquaredError(None if y is None else _targets(y, outputs))
    if outputs.shape[1] == 1:
        raise Refused(
            "wrong-loss",
            "cross_entropy of one output is 0 whatever the output; pass two outputs, or "
            "torch.nn.functional.binary_cross_entropy_with_logits.",
        )
    return CrossEntropy(None if y is None else _probabilities(_targets(y, outputs)))


def _targets(y: object, outputs: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """Return targets of the shape of the outputs, classes as vectors with a 1."""
    n, k = outputs.shape
    if not isinstance(y, Tensor):
        raise TypeError(f"y is of type {type(y).__name__}; a torch tensor was expected, such as torch.as_tensor(y).")
    if tuple(y.shape) == (n, k):
        return as_float64(y, "y").to(outputs.device)
    if tuple(y.shape) == (n,) and not y.is_floating_point() and not y.is_complex() and y.dtype != torch.bool:
        if y.amin() < 0 or y.amax() >= k:
            raise Refused(
                "wrong-targets",
                f"y has classes from {int(y.amin())} to {int(y.amax())}; of {k} outputs, 0 to {k - 1} were expected.",
            )
        return functional.one_hot(y.long(), k).to(outputs)
    if tuple(y.shape) == (n,):
        raise TypeError(
            f"y has shape ({n},) and type {y.dtype}; classes are integers, y.long(), and numbers have one for each "
            f"output, ({n}, {k})."
        )
    hint = "; classes have no second axis: y.squeeze(1)" if tuple(y.shape) == (n, 1) else ""
    raise Refused(
        "wrong-targets", f"y has shape {tuple(y.shape)}; classes ({n},) or targets ({n}, {k}) were expected{hint}."
    )


def _probabilities(targets: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """Return targets if those of each sample are probabilities."""
    sums = targets.sum(1)
    negative, worst = targets.amin() < 0, int((sums - 1).abs().argmax())
    if negative or abs(sums[worst] - 1) > SUMS:
        how = f"an entry is {targets.amin():.3g}" if negative else f"row {worst} adds up to {sums[worst]:.3g}"
        raise Refused(
            "wrong-targets",
            f"y has no probabilities in its rows: {how}; class indices, one-hot rows, or rows that add up to 1 were "
            "expected for the cross-entropy.",
        )
    return targets


def _given(targets: Tensor | None) -> Tensor:
    if targets is None:
        raise Refused("no-targets", "y is missing; the value and the gradient of a loss need targets.")
    return targets
