r"""Fully connected networks of one shape, side by side, whose tangent kernel is a sum over layers."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

Activation = Callable[[Tensor], Tensor]


def identity(z: Tensor) -> Tensor:
    """Return the argument: a layer without an activation."""
    return z


class Passes(NamedTuple):
    """Inputs and outputs of the layers of networks, the input layer first."""

    inputs: list[Tensor]  # of the layers, the input layer first
    products: list[Tensor]  # of the inputs with the weights, times the factors

    @property
    def outputs(self) -> Float[Tensor, "runs n k"]:
        """Those of the networks."""
        return self.products[-1]


class StackedNetworks(nn.Module):
    r"""Networks :math:`f = c_L W_L\, \sigma_{L-1}(c_{L-1} W_{L-1} \cdots \sigma_1(c_1 W_1 x))`, one for each run.

    Weights are of shape (runs, out, in), the input layer first, and copied in double precision; there is a factor for
    each layer and an activation for each but the last.
    """

    def __init__(self, weights: Sequence[Tensor], factors: Sequence[float], activations: Sequence[Activation]) -> None:
        super().__init__()
        self.weights = nn.ParameterList(w.double().clone() for w in weights)
        self.factors, self.activations = tuple(factors), tuple(activations)

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self.weights[0])

    def forward(self, x: Float[Tensor, "*runs n d"]) -> Float[Tensor, "runs n k"]:
        """Return the outputs of each network, on its own samples or on samples for all."""
        return self.passes(x).outputs

    def passes(self, x: Float[Tensor, "*runs n d"]) -> Passes:
        """Return inputs and products of all layers: the outputs, and all that the way back needs."""
        inputs, products = [x], []
        for index, (w, factor) in enumerate(zip(self.weights, self.factors, strict=True)):
            products.append(factor * (inputs[-1] @ w.mT))
            if index < len(self.activations):
                inputs.append(self.activations[index](products[-1]))
        return Passes(inputs, products)

    @torch.no_grad()
    def step(self, passes: Passes, slopes: Float[Tensor, "runs n k"], rates: Float[Tensor, " runs"]) -> None:
        """Take a step of gradient descent, in place.

        The gradient by a weight matrix is a product of two thin matrices, subtracted as it is computed: to form it
        first would take longer than all the rest. `slopes` are derivatives of the loss by the outputs.
        """
        back = slopes
        for index in reversed(range(len(self.weights))):
            w, inputs = self.weights[index], passes.inputs[index].expand(len(self), -1, -1)
            back = self.factors[index] * back
            below = back @ w if index else back
            w.baddbmm_((-rates[:, None, None] * back).mT, inputs)
            if index:
                back = below * slope(self.activations[index - 1], passes.products[index - 1])

    @torch.no_grad()
    def kernel(self, x: Float[Tensor, "*runs n d"]) -> Float[Tensor, "runs nk nk"]:
        r"""Return the tangent kernels, with row `i * k + a` for output a on sample i.

        The derivative of an output by a weight matrix is a dyad, so the share of a layer in the kernel is the product,
        entry by entry, of two Gram matrices: that of its inputs, and that of the derivatives by its products. No
        Jacobian is formed; the cost is that of k backward passes and of Gram matrices.
        """
        inputs, products = self.passes(x)
        runs, n, k = products[-1].shape
        back = torch.eye(k, dtype=x.dtype, device=x.device).expand(runs, n, k, k)  # runs, sample, output, unit
        total = x.new_zeros(runs, n, k, n, k)
        for index in reversed(range(len(self.weights))):
            gram = self.factors[index] ** 2 * inputs[index] @ inputs[index].mT
            rows = back.reshape(runs, n * k, -1)
            total += gram[..., :, None, :, None] * (rows @ rows.mT).view(runs, n, k, n, k)
            if index:
                slopes = slope(self.activations[index - 1], products[index - 1])
                back = (rows @ self.weights[index]).view(runs, n, k, -1) * (self.factors[index] * slopes)[:, :, None]
        return total.view(runs, n * k, n * k)

    def only(self, runs: Sequence[int]) -> "StackedNetworks":
        """Return copies of some of the networks."""
        return StackedNetworks([w.detach()[list(runs)] for w in self.weights], self.factors, self.activations)


class FrozenKernels(StackedNetworks):
    r"""Linear models, one for each run, that know their outputs on the samples and no weights.

    A step of gradient descent takes the outputs to :math:`f - \eta K \nabla_f \ell`, with the kernel K of the start.
    Row `i * k + a` of a kernel is of output a on sample i.
    """

    def __init__(self, outputs: Float[Tensor, "runs n k"], kernels: Float[Tensor, "runs nk nk"]) -> None:
        super().__init__([outputs], [1.0], [])
        self.kernels = kernels

    def passes(self, x: Float[Tensor, "*runs n d"]) -> Passes:
        """Return the outputs; the samples are those of the start, whatever is given."""
        return Passes([x], [self.weights[0].detach().clone()])

    @torch.no_grad()
    def step(self, passes: Passes, slopes: Float[Tensor, "runs n k"], rates: Float[Tensor, " runs"]) -> None:
        """Take a step of gradient descent, in place, as networks with weights do."""
        self.weights[0].sub_(rates[:, None, None] * (self.kernels @ slopes.flatten(1)[..., None]).view_as(slopes))

    def kernel(self, x: Float[Tensor, "*runs n d"]) -> Float[Tensor, "runs nk nk"]:
        """Return the kernels of the start."""
        return self.kernels

    def only(self, runs: Sequence[int]) -> "FrozenKernels":
        """Return copies of some of the models."""
        return FrozenKernels(self.weights[0].detach()[list(runs)], self.kernels[list(runs)])


def shallow(
    width: int, outputs: int = 3, *, inputs: int = 2, activation: Activation = torch.relu, seeds: Sequence[int]
) -> StackedNetworks:
    r"""Draw networks with one hidden layer, :math:`f = V \sigma(W x) / \sqrt m` (Liu 2020, Eq. 43).

    All weights are standard normal. For biases give samples an entry of one, as
    :func:`gnbook.when_the_kernel_moves.on_a_line.with_one` does.
    """
    return StackedNetworks(_normal([inputs, width, outputs], seeds), [1.0, width**-0.5], [activation])


def bottleneck(
    width: int,
    narrow: int,
    outputs: int = 3,
    *,
    inputs: int = 2,
    activation: Activation = torch.relu,
    middle: Activation = identity,
    scaled: bool = False,
    seeds: Sequence[int],
) -> StackedNetworks:
    r"""Draw networks with a bottleneck, linear unless it is said otherwise (Liu 2020, Eqs. 31 and 48).

    .. math::
        f = \tfrac1{\sqrt m} W_4\, \sigma\Bigl(c\, W_3\, \tau\bigl(\tfrac1{\sqrt m} W_2\, \sigma(W_1 x)\bigr)\Bigr)

    All weights are standard normal. Here :math:`m_b` is `narrow` and :math:`\tau` is `middle`; c is
    :math:`1/\sqrt{m_b}` if `scaled`, as in the networks of Liu 2020, section 3, and otherwise 1, as in Eq. 48.
    """
    weights = _normal([inputs, width, narrow, width, outputs], seeds)
    factor = narrow**-0.5 if scaled else 1.0
    return StackedNetworks(weights, [1.0, width**-0.5, factor, width**-0.5], [activation, middle, activation])


def _normal(widths: Sequence[int], seeds: Sequence[int]) -> list[Tensor]:
    """Draw standard normal weights; those of a run depend on its seed alone."""
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    return [
        torch.stack([torch.randn(out, fan_in, generator=g, dtype=torch.float64, device=g.device) for g in generators])
        for fan_in, out in pairwise(widths)
    ]


def slope(activation: Activation, z: Tensor) -> Tensor:
    """Return the derivative of an activation, entry by entry."""
    with torch.enable_grad():
        z = z.detach().requires_grad_()
        return torch.autograd.grad(activation(z).sum(), z)[0]
