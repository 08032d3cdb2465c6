r"""Bounds on the Hessian of a wide network, and on the change of its kernel: Liu 2020, sections 2 and 3, explicitly.

A layer enters through six numbers, :class:`LayerNorms`. They are computed for a network at a point by
:func:`layer_norms`, or bounded in a whole ball around it by
:func:`gnbook.transition_to_linearity.ball.ball_norms`; the bounds on the Hessian that
follow are :func:`layered_bound` and :func:`liu_theorem_3_1`.
"""

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.transition_to_linearity.wide_network import WideNetwork
from gnlib.checks import as_float64


def liu_proposition_2_3(
    gradient_norms: Float[Tensor, " n"], hessian_norms: Float[Tensor, " n"], radius: float
) -> Float[Tensor, "n n"]:
    r"""Return bounds on the change of each entry of the tangent kernel in a ball (Liu 2020, Proposition 2.3).

    It is :math:`R\, (\epsilon_i \|g_j\| + \epsilon_j \|g_i\| + \epsilon_i \epsilon_j R)`, and attained (see the
    claims). Here :math:`\|g_i\|` are norms of gradients at the centre and :math:`\epsilon_i` bounds on those of
    Hessians in the whole ball, of radius R in the Euclidean norm.
    """
    g, e = as_float64(gradient_norms, "gradient_norms"), as_float64(hessian_norms, "hessian_norms")
    return radius * (torch.outer(e, g) + torch.outer(g, e) + radius * torch.outer(e, e))


class LayerNorms(NamedTuple):
    r"""Six norms of a layer :math:`\alpha = \phi(w; \alpha_-)` that bound its share in the Hessian."""

    gradient_max: float  # largest entry of |df / d alpha|
    by_input: float  # spectral norms of the derivatives of alpha, by its input and by w
    by_weights: float
    # (2,2,1)-norms of second derivatives; those with the input are zero for the first layer, whose input is fixed
    input_input: float
    input_weights: float
    weights_weights: float


def norm_221(tensor: Float[Tensor, "d1 d2 d3"]) -> float:
    r"""Return the (2,2,1)-norm of a small tensor of order three (Liu 2020, Definition 2.2).

    It is the largest spectral norm of the :math:`2^{d_3}` signed sums :math:`\sum_k \pm T_{\cdot\cdot k}`, all of which
    are tried.
    """
    signs = tensor.new_tensor([(1.0, *rest) for rest in product((1.0, -1.0), repeat=tensor.shape[2] - 1)])
    return torch.linalg.matrix_norm(torch.einsum("sk,ijk->sij", signs, tensor), 2).max().item()


def layer_norms(network: WideNetwork, x: Float[Tensor, "1 d"]) -> list[LayerNorms]:
    """Return the six norms of each hidden layer of a fully connected or residual network on a sample, exactly.

    All of them are eigenvalues: one decomposition of a matrix as large as the layer is wide for each. The mixed
    (2,2,1)-norm of a convolution is none.
    """
    layers = []
    for index, (w, a, pre, b) in enumerate(layer_passes(network, x)):
        first, second = _derivatives(network.activation, pre)
        fan_in, moves = w.shape[1], index > 0
        by_input = first[:, None] * w / fan_in**0.5
        if network.skip and moves:
            by_input = by_input + torch.eye(len(w), dtype=w.dtype, device=w.device)
        mixed = torch.outer(w.mT @ (first * second), a) / fan_in**1.5
        mixed = mixed + mixed.mT + (w.mT * second**2) @ w * (a @ a / fan_in**2)
        mixed.diagonal().add_(first @ first / fan_in)
        layers.append(
            LayerNorms(
                gradient_max=b.abs().max().item(),
                by_input=moves * largest_eigenvalue(by_input.mT @ by_input) ** 0.5,
                by_weights=(first.abs().max() * torch.linalg.vector_norm(a) / fan_in**0.5).item(),
                input_input=moves * largest_eigenvalue((w.mT * second.abs()) @ w) / fan_in,
                input_weights=moves * largest_eigenvalue(mixed) ** 0.5,
                weights_weights=(second.abs().max() * (a @ a) / fan_in).item(),
            )
        )
    return layers


def layered_bound(layers: Sequence[LayerNorms], width: int | None) -> float:
    r"""Return an upper bound on the spectral norm of the Hessian, from the norms of the layers.

    With :math:`d_0 = 0` and :math:`d_l^2 = \|\partial \alpha^{(l)} / \partial \alpha^{(l-1)}\|^2 d_{l-1}^2 + \|\partial
    \alpha^{(l)} / \partial w^{(l)}\|^2`, it is the largest eigenvalue of a 2 x 2 matrix with the entries :math:`\sum_l
    \|\partial f / \partial \alpha^{(l)}\|_\infty \lambda_{\max}(M_l)` and :math:`d_L / \sqrt m`, where :math:`M_l` is
    the 2 x 2 matrix of the (2,2,1)-norms of layer l, those with its input times :math:`d_{l-1}`, twice for twice (see
    the claims). It is never above Theorem 3.1 of Liu 2020. The width is m of the factor :math:`1/\sqrt m` of a trained
    output layer, None if that is fixed.
    """
    curvature = reach = 0.0
    for layer in layers:
        corner, side = layer.input_input * reach**2, layer.input_weights * reach
        curvature += layer.gradient_max * _top(corner, side, layer.weights_weights)
        reach = math.hypot(layer.by_input * reach, layer.by_weights)
    return curvature if width is None else _top(curvature, reach / width**0.5, 0.0)


def liu_theorem_3_1(layers: Sequence[LayerNorms], width: int) -> float:
    r"""Return the bound of Liu 2020, Theorem 3.1, with two repairs without which it is none (see the claims).

    The maximum in :math:`\mathcal{Q}_{2,2,1}` runs over all layers that a term of the Hessian can involve, equal ones
    included, and the Lipschitz constant :math:`\mathsf{L}_\phi`, the largest derivative of a layer, counts as 1 where
    it is less.
    """
    count = len(layers)
    largest = max(layer.by_weights for layer in layers)
    lipschitz = max(1.0, largest, *(layer.by_input for layer in layers))
    below, quantity = 0.0, 0.0
    for layer in layers:
        terms = (layer.weights_weights, below * layer.input_weights, below**2 * layer.input_input)
        quantity, below = max(quantity, *terms), max(below, layer.by_weights)
    first = count * (count**2 * lipschitz ** (2 * count) + count * lipschitz**count + 1)
    gradient = max(layer.gradient_max for layer in layers)
    return first * quantity * gradient + count * lipschitz**count * largest / width**0.5


def layer_passes(network: WideNetwork, x: Tensor) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Return, for each hidden layer, its weights, its input, its preactivations, and the gradient by its values."""
    before, after = network.values(x.detach().clone().requires_grad_())
    gradients = torch.autograd.grad(network.read(after[-1]).sum(), after[1:])
    weights = [w.detach() for w in network.hidden]
    inputs, pre = ([t.detach().flatten() for t in tensors] for tensors in (after[:-1], before))
    return list(zip(weights, inputs, pre, [g.flatten() for g in gradients], strict=True))


def _derivatives(activation: Callable[[Tensor], Tensor], z: Float[Tensor, " m"]) -> tuple[Tensor, Tensor]:
    """Return the first and the second derivative of an activation, entry by entry."""
    slope = torch.func.grad(lambda z: activation(z).sum())
    return slope(z), torch.func.grad(lambda z: slope(z).sum())(z)


def largest_eigenvalue(matrix: Float[Tensor, "d d"]) -> float:
    """Return the largest eigenvalue of a positive semi-definite matrix."""
    return max(torch.linalg.eigvalsh(matrix)[-1].item(), 0.0)


def _top(corner: float, side: float, other: float) -> float:
    """Return the larger eigenvalue of the matrix [[corner, side], [side, other]]."""
    return (corner + other) / 2 + math.hypot((corner - other) / 2, side)
