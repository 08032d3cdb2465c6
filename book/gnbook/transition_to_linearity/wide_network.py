r"""Networks in the parameterisation of the tangent kernel: unit weights, and a factor of :math:`1/\sqrt m` a layer."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnlib.checks import numerical_rank


def normal_weights(
    widths: Sequence[int], *, filter_size: tuple[int, int] = (1, 1), pixels: int = 1, generator: torch.Generator
) -> list[Tensor]:
    """Draw the weights of a :class:`WideNetwork`: independent standard normal entries, whatever the width.

    The widths are `[d, m_1, ..., m_L, k]`, channels from the input on, then outputs. Matrices are of shape `(m_l,
    m_{l-1} * prod(filter_size))`, and `(k, m_L * pixels)` for the output; the defaults are for fully connected layers.
    """
    *hidden, last = pairwise(widths)
    shapes = [(out, fan_in * math.prod(filter_size)) for fan_in, out in hidden] + [(last[1], last[0] * pixels)]
    return [torch.randn(s, generator=generator, device=generator.device, dtype=torch.float64) for s in shapes]


class WideNetwork(nn.Module):
    r"""A network in tangent-kernel parameterisation (Liu 2020, Eqs. 19, 63, 90, 97), with a linear output layer.

    .. math::
        \alpha^{(l)} = \sigma\Bigl(\tfrac{1}{\sqrt{m_{l-1}}} W^{(l)} * \alpha^{(l-1)}\Bigr) \;[+\; \alpha^{(l-1)}],
        \qquad f = \tfrac{1}{\sqrt{m_L}} V \alpha^{(L)}

    The star is a matrix product for filter size (1, 1), else a convolution that keeps the size of the image; the term
    in brackets is the skip, from the second layer on. `m_0 = d` is the number of inputs or of channels of the input.
    Weights are as :func:`normal_weights` draws them, the activation is smooth, and filters have odd sizes.
    """

    def __init__(
        self,
        weights: Sequence[Tensor],
        *,
        activation: Callable[[Tensor], Tensor] = torch.tanh,
        filter_size: tuple[int, int] = (1, 1),
        skip: bool = False,
    ) -> None:
        super().__init__()
        *hidden, last = (w.detach().clone() for w in weights)
        self.hidden, self.last = nn.ParameterList(hidden), nn.Parameter(last)
        self.activation, self.filter_size, self.skip = activation, tuple(filter_size), skip

    def patches(self, h: Float[Tensor, "n c height width"]) -> Float[Tensor, "n cK pixels"]:
        """Return the patch of the filters at each pixel, as a column."""
        if self.filter_size == (1, 1):
            return h.flatten(2)
        return nn.functional.unfold(h, self.filter_size, padding=(self.filter_size[0] // 2, self.filter_size[1] // 2))

    def layer(self, index: int, patches: Float[Tensor, "n cK pixels"]) -> Float[Tensor, "n m pixels"]:
        r"""Return the product of the weights of a hidden layer, without the factor :math:`1/\sqrt{m_{l-1}}`."""
        return self.hidden[index] @ patches

    def values(self, x: Float[Tensor, " n *shape"]) -> tuple[list[Tensor], list[Tensor]]:
        """Return the preactivations, (n, m, pixels) a hidden layer, and the input with the hidden values."""
        before, after = [], [x if x.ndim == 4 else x[:, :, None, None]]
        for index in range(len(self.hidden)):
            h = after[-1]
            before.append(self.layer(index, self.patches(h)) / h.shape[1] ** 0.5)
            new = self.activation(before[-1]).unflatten(2, h.shape[2:])
            after.append(new + h if self.skip and index else new)
        return before, after

    def forward(self, x: Float[Tensor, " n *shape"]) -> Float[Tensor, "n k"]:
        """Return the outputs on vectors (n, d) or images (n, channels, height, width)."""
        return self.read(self.values(x)[1][-1])

    def read(self, h: Float[Tensor, "n m height width"]) -> Float[Tensor, "n k"]:
        """Return the outputs for values of the last hidden layer."""
        return h.flatten(1) @ self.last.mT / h.shape[1] ** 0.5

    def on_its_range(self, x: Float[Tensor, " 1 *shape"]) -> "RangeNetwork":
        """Return the same function of far fewer parameters, for its Hessian on one sample; see `RangeNetwork`."""
        return RangeNetwork(self, x)


class RangeNetwork(WideNetwork):
    r"""A wide network whose weights move only where its Hessian on one sample can see it.

    On a sample, the derivative with respect to :math:`W` is :math:`C A^\top`, where A holds the inputs of the layer and
    C the derivatives with respect to its products, one column a pixel. The derivative of that in any direction is
    :math:`\dot C A^\top + C \dot A^\top`. So the Hessian maps everything into matrices of the form :math:`U Q_A^\top +
    Q_C Z^\top (I - Q_A Q_A^\top)`, with orthonormal bases of the columns of A and of C, and it vanishes on their
    complement. As a function of U, Z and V the network has a Hessian with the same non-zero eigenvalues, but of a size
    that grows like the width, not like its square. With one more function applied to a single output that remains so.
    The weights are those of the network, and frozen ones stay so.
    """

    def __init__(self, network: WideNetwork, x: Float[Tensor, " 1 *shape"]) -> None:
        nn.Module.__init__(self)
        self.activation, self.filter_size, self.skip = network.activation, network.filter_size, network.skip
        self.last = network.last
        self.hidden = nn.ParameterList(nn.Parameter(w.detach(), requires_grad=False) for w in network.hidden)
        before, after = network.values(x.detach().clone().requires_grad_())
        gradients = torch.autograd.grad(network.read(after[-1]).sum(), before)
        self.inputs = nn.ParameterList(_basis(self.patches(h.detach())[0]) for h in after[:-1])
        self.gradients = nn.ParameterList(_basis(c[0]) for c in gradients)
        self.left, self.right = nn.ParameterList(), nn.ParameterList()  # U, and Z but for the data, which do not move
        for w, a in zip(network.hidden, self.inputs, strict=True):
            self.left.append(nn.Parameter(w.new_zeros(len(w), a.shape[1]), w.requires_grad))
        for w, c in zip(network.hidden[1:], self.gradients[1:], strict=True):
            self.right.append(nn.Parameter(w.new_zeros(w.shape[1], c.shape[1]), w.requires_grad))

    def layer(self, index: int, patches: Float[Tensor, "n cK pixels"]) -> Float[Tensor, "n m pixels"]:
        """Return the product of the moved weights, which are not formed."""
        a, c = self.inputs[index], self.gradients[index]
        inside = a.mT @ patches
        product = self.hidden[index] @ patches + self.left[index] @ inside
        if index == 0:
            return product
        return product + c @ (self.right[index - 1].mT @ (patches - a @ inside))


def _basis(columns: Float[Tensor, "rows pixels"]) -> nn.Parameter:
    """Return an orthonormal basis of the range of a matrix; of a zero matrix, some unit vector."""
    u, s, _ = torch.linalg.svd(columns, full_matrices=False)
    rank = numerical_rank(s, max(columns.shape))
    return nn.Parameter(u[:, : max(rank, 1)].contiguous(), requires_grad=False)
