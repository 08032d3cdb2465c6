r"""Norms of the layers of a wide network in a whole ball of weights: Liu 2020, Lemma 3.1, with all constants."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.transition_to_linearity.linearity import LayerNorms, largest_eigenvalue, layer_passes
from gnbook.transition_to_linearity.wide_network import WideNetwork


class Smoothness(NamedTuple):
    """Constants of an activation: bounds on its first and second derivative, and its value at zero."""

    lipschitz: float
    curvature: float
    at_zero: float


TANH = Smoothness(1.0, 4 / 27**0.5, 0.0)


class Start(NamedTuple):
    r"""Upper bounds on the norms of a network at the centre of a ball, one a hidden layer, the input layer first."""

    widths: list[int]  # [m_0, ..., m_L], from the input on
    weights: list[float]  # of |W_l| / sqrt(m_(l-1))
    values: list[float]  # of |alpha_(l-1)| / sqrt(m_(l-1)), the input first
    gradients: list[float]  # of |df / d alpha_l|
    maxima: list[float]  # of the largest entry of |df / d alpha_l|


def measured_start(network: WideNetwork, x: Float[Tensor, "1 d"]) -> Start:
    """Return the norms at the centre of a ball of a fully connected or residual network, measured."""
    start = Start(widths=[x.shape[1]], weights=[], values=[], gradients=[], maxima=[])
    for w, a, _, b in layer_passes(network, x):
        scale = w.shape[1] ** 0.5
        start.widths.append(len(w))
        start.weights.append(largest_eigenvalue(w.mT @ w) ** 0.5 / scale)
        start.values.append(torch.linalg.vector_norm(a).item() / scale)
        start.gradients.append(torch.linalg.vector_norm(b).item())
        start.maxima.append(b.abs().max().item())
    return start


def likely_start(widths: Sequence[int], size: float, smoothness: Smoothness, *, failure: float) -> Start:
    r"""Return bounds that hold at Gaussian initialisation of a fully connected network, but for a small probability.

    The spectral norms are those of Gaussian matrices (Liu 2020, Lemma F.1), and :math:`\|\partial f / \partial
    \alpha^{(l)}\|_\infty \le \|\partial \alpha^{(L)} / \partial \alpha^{(l)}\| \sqrt{2 \ln(2 m_l / \delta) / m_L}`,
    because the output layer is Gaussian and independent of the rest (see the claims: a proof of Lemma F.6 in one line).
    The widths are `[d, m_1, ..., m_L]`, `size` is :math:`\|x\| / \sqrt d`, and `failure` the probability that any of
    the bounds fails.
    """
    depth = len(widths) - 1
    each = failure / (2 * depth + 1)
    slack = (2 * math.log(1 / each)) ** 0.5
    weights = [(m**0.5 + n**0.5 + slack) / n**0.5 for n, m in pairwise(widths)]
    values = [size]
    for (n, m), s in zip(pairwise(widths[:-1]), weights[:-1], strict=True):
        values.append(smoothness.lipschitz * s * values[-1] * (n / m) ** 0.5 + abs(smoothness.at_zero))
    gradients, maxima, above = [], [], 1.0
    for m, s in zip(reversed(widths[1:]), reversed(weights), strict=True):
        gradients.insert(0, above * (1 + slack / widths[-1] ** 0.5))
        maxima.insert(0, above * (2 * math.log(2 * m / each) / widths[-1]) ** 0.5)
        above *= smoothness.lipschitz * s
    return Start(widths=list(widths), weights=weights, values=values, gradients=gradients, maxima=maxima)


def ball_norms(start: Start, smoothness: Smoothness, radius: float, *, skip: bool = False) -> list[LayerNorms]:
    """Return upper bounds on the six norms of each layer that hold in a whole ball (Liu 2020, Lemma 3.1, explicitly).

    The radius is in the Euclidean norm of all weights; with `skip` hidden layers from the second on have one.
    """
    slope, bend, _ = smoothness
    depth = len(start.weights)
    before, values, way = [], [], 0.0  # how far preactivations move, how large hidden values are, how far they move
    for index in range(depth):
        scale = start.widths[index] ** 0.5
        values.append(start.values[index] + way / scale)
        before.append(start.weights[index] * way + radius * values[-1])
        way = slope * before[-1] + (way if skip and index else 0.0)
    moved = [radius / start.widths[-1] ** 0.5]  # how far the gradients move, from the output on
    for index in range(depth - 1, 0, -1):
        s, scale = start.weights[index], start.widths[index] ** 0.5
        gradient = start.gradients[index] + moved[0]
        step = radius / scale * slope * gradient + s * (bend * start.maxima[index] * before[index] + slope * moved[0])
        moved.insert(0, step + (moved[0] if skip else 0.0))
    layers = []
    for index in range(depth):
        moves, scale = index > 0, start.widths[index] ** 0.5
        s, a = start.weights[index] + radius / scale, values[index]
        ratio = (start.widths[index + 1] / start.widths[index]) ** 0.5
        layers.append(
            LayerNorms(
                gradient_max=start.maxima[index] + moved[index],
                by_input=moves * (slope * s + (skip and moves)),
                by_weights=slope * a,
                input_input=moves * bend * s**2,
                input_weights=moves * (bend * s * a + slope * ratio),
                weights_weights=bend * a**2,
            )
        )
    return layers
