r"""The other half of the Hessian, of the loss of a deep linear network (Zhao 2024, section 2 and appendix F).

With the loss :math:`\frac1{2n} \sum_i \|f(x_i) - y_i\|^2` the Hessian is :math:`H = G + H_F`. For a linear network
both halves depend on the data through two matrices alone, the second moment :math:`\Sigma` and the *residual moment*
:math:`\Omega = \frac1n \sum_i (f(x_i) - y_i)\, x_i^\top`. All matrices here have one row and one column a parameter, in
the order of `torch.nn.Module.parameters`: layer by layer, input layer first, each weight row by row.
"""

from collections.abc import Iterator, Sequence
from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import as_float64, as_samples, as_weights
from gnlib.linear.gauss_newton import partial_products
from gnlib.linear.moment import SecondMoment, as_second_moment
from gnlib.linear.network import linear_network


def residual_moment(
    weights: Sequence[Tensor], x: Float[Tensor, "n d"], y: Float[Tensor, "n k"]
) -> Float[Tensor, "k d"]:
    r"""Return the mean product of residual and input, :math:`\Omega = \frac1n \sum_i (f(x_i) - y_i)\, x_i^\top`.

    It is the derivative of the loss with respect to the product :math:`W_L \cdots W_1` (Zhao 2024, below Eq. 17).
    """
    weights, x, y = as_weights(weights), as_samples(x), as_float64(y, "y")
    return (linear_network(weights, x) - y).mT @ x / len(x)


def functional_hessian(weights: Sequence[Tensor], residual_moment: Float[Tensor, "k d"]) -> Float[Tensor, "p p"]:
    r"""Return :math:`H_F` of a deep linear network.

    With :math:`A_\ell` and :math:`B_\ell` the products above and below a layer, and the product
    :math:`C = W_{\ell'-1} \cdots W_{\ell+1}` between two layers :math:`\ell < \ell'`, the block of these two maps a
    change :math:`D` of :math:`W_{\ell'}` to :math:`C^\top D^\top A_{\ell'}^\top \Omega B_\ell^\top`. The blocks on
    the diagonal are zero. For one hidden layer that is Zhao 2024, Eq. 17.
    """
    weights, omega = as_weights(weights), as_float64(residual_moment, "residual_moment")
    hessian, parts = _empty(weights)
    for first, second, between, outer in layer_pairs(weights, omega):
        block = torch.einsum("ja,ib->abij", between, outer).reshape(weights[first].numel(), weights[second].numel())
        hessian[parts[first], parts[second]] = block
        hessian[parts[second], parts[first]] = block.mT
    return hessian


def layer_pairs(
    weights: list[Tensor], omega: Float[Tensor, "k d"]
) -> Iterator[tuple[int, int, Float[Tensor, "_j _a"], Float[Tensor, "_i _b"]]]:
    r"""Yield each pair of layers :math:`\ell < \ell'` (from 0), with the factors of their block of :math:`H_F`.

    These are :math:`C = W_{\ell'-1} \cdots W_{\ell+1}` and :math:`A_{\ell'}^\top \Omega B_\ell^\top`.
    """
    products = partial_products(weights)
    for first, (_, below) in enumerate(products):
        between = torch.eye(len(weights[first]), dtype=omega.dtype, device=omega.device)
        for second in range(first + 1, len(weights)):
            yield first, second, between, products[second][0].mT @ omega @ below.mT
            between = weights[second] @ between


def functional_hessian_eigenvalues(residual_moment: Float[Tensor, "k d"], width: int) -> Float[Tensor, " p"]:
    r"""Return all eigenvalues of :math:`H_F` for one hidden layer, in descending order.

    They are the singular values of :math:`\Omega` and their opposites, each as many times as the layer has units, and
    :math:`m |k - d|` zeros more (Zhao 2024, appendix F, with the zeros). The weights enter by their product in
    :math:`\Omega` alone.
    """
    omega = as_float64(residual_moment, "residual_moment")
    values = torch.linalg.svdvals(omega).repeat_interleave(width)
    zeros = values.new_zeros(width * abs(omega.shape[0] - omega.shape[1]))
    return torch.cat([values, zeros, -values.flip(0)])


def linear_hessian(
    weights: Sequence[Tensor], second_moment: Float[Tensor, "d d"] | SecondMoment, residual_moment: Float[Tensor, "k d"]
) -> Float[Tensor, "p p"]:
    r"""Return the Hessian :math:`H = G + H_F` of the loss of a deep linear network.

    The block of layers :math:`\ell, \ell'` of the Gauss-Newton matrix is :math:`A_\ell^\top A_{\ell'} \otimes B_\ell
    \Sigma B_{\ell'}^\top`. The size `p` grows with the width; beyond a few thousand parameters see
    :func:`linear_hessian_product`. The second moment may be given by its factors.
    """
    weights, omega, sigma = as_weights(weights), as_float64(residual_moment, "residual_moment"), _matrix(second_moment)
    hessian, parts = _empty(weights)
    products = partial_products(weights)
    for rows, (above, below) in zip(parts, products, strict=True):
        for columns, (other_above, other_below) in zip(parts, products, strict=True):
            hessian[rows, columns] = torch.kron(
                (above.mT @ other_above).contiguous(), (below @ sigma @ other_below.mT).contiguous()
            )
    return hessian + functional_hessian(weights, omega)


def linear_hessian_product(
    weights: Sequence[Tensor],
    second_moment: Float[Tensor, "d d"] | SecondMoment,
    residual_moment: Float[Tensor, "k d"],
    direction: Sequence[Tensor],
) -> list[Tensor]:
    r"""Return the product of the Hessian with a direction, without forming the Hessian.

    It is the derivative, along the direction, of the gradient :math:`A_\ell^\top \Omega B_\ell^\top` of each layer, at
    the cost of a few passes through the network. The direction, and the result, have a matrix of the shape of each
    weight.
    """
    weights, omega, sigma = as_weights(weights), as_float64(residual_moment, "residual_moment"), _matrix(second_moment)
    start = reduce(torch.mm, weights[::-1])

    def loss(moved: list[Tensor]) -> Tensor:  # but for its value at the weights
        change = reduce(torch.mm, moved[::-1]) - start
        return (omega * change).sum() + (change @ sigma * change).sum() / 2

    _, product = torch.func.vjp(torch.func.grad(loss), weights)
    return product([as_float64(w, f"direction[{i}]") for i, w in enumerate(direction)])[0]


def _matrix(second_moment: Tensor | SecondMoment) -> Float[Tensor, "d d"]:
    moment = as_second_moment(second_moment)
    return moment.basis * moment.eigenvalues @ moment.basis.mT


def _empty(weights: list[Tensor]) -> tuple[Float[Tensor, "p p"], list[slice]]:
    """Return zeros with a row and a column a parameter, and the place of each layer."""
    parts, end = [], 0
    for w in weights:
        parts.append(slice(end, end + w.numel()))
        end += w.numel()
    return weights[0].new_zeros(end, end), parts
