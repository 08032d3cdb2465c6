"""What gains are chosen by: the condition number, and the time that the linear model takes; both with gradients."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.design.layers import Layers

SHARPNESS = 32.0  # p of the smooth condition number
LONGEST = 1e9  # time at which a goal counts as out of reach
CLOSE = 1e-5  # eigenvalues, times the time, for which a derivative takes the place of a difference

Objective = Callable[[Float[Tensor, " layers"]], Float[Tensor, ""]]


def log_condition(kernel: Float[Tensor, "nk nk"], p: float = SHARPNESS) -> Float[Tensor, ""]:
    r"""Return the logarithm of the smooth condition number.

    :math:`(\operatorname{tr} K^p \operatorname{tr} K^{-p})^{1/p}` is at least the condition number, and at most
    :math:`(nk)^{2/p}` times as large (`claims-design`, "One minimum").
    """
    logarithms = torch.linalg.eigvalsh(kernel).log()
    return ((p * logarithms).logsumexp(0) + (-p * logarithms).logsumexp(0)) / p


def certificate(layers: Layers, z: Float[Tensor, " layers"], p: float = SHARPNESS) -> float:
    r"""Return a condition number below which no weights of the parts of a kernel get.

    It is :math:`\min_i \langle K_i, Y \rangle / \langle K_i, X \rangle` with :math:`X \propto K^{-p-1}` and
    :math:`Y \propto K^{p-1}` of trace one, which is near the condition number where z minimises the smooth one
    (`claims-design`, "How much gains can do").
    """
    values, vectors = torch.linalg.eigh(layers.kernel(z))
    in_modes = torch.einsum("ij,aik,kj->aj", vectors, layers.parts, vectors)
    top, bottom = ((power * values.log()).softmax(0) for power in (p - 1, -p - 1))
    return ((in_modes @ top) / (in_modes @ bottom)).min().item()


def log_time(
    layers: Layers, z: Float[Tensor, " layers"], targets: Float[Tensor, "n k"], goal: float
) -> tuple[Float[Tensor, ""], Float[Tensor, " parts"]]:
    r"""Return the logarithm of the time that the linear model takes to a loss, and how far it moves the parameters.

    The model follows the gradient flow :math:`\dot r = -K r` of the squared error, from the residual under gains. Time
    is counted in units of one over the largest eigenvalue: in steps at half of the largest stable rate. Both have
    derivatives by z. The second is, by parameter, the squared displacement over the square of its spectral norm. A goal
    that is met at the start takes no time, minus infinity; one that is out of reach takes 1e9. The loss is half the
    squared distance, the mean over the samples.
    """
    n = len(targets)
    residual = (layers.scaled(z) - targets).flatten()
    if residual.square().sum() / (2 * n) <= goal:
        return z.sum() * 0 - math.inf, z.new_zeros(len(layers.parts))
    kernel = layers.kernel(z)
    values, vectors = torch.linalg.eigh(kernel.detach())
    largest = vectors[:, -1] @ kernel @ vectors[:, -1]
    values, kernel = (values / values[-1]).clamp_min(0), kernel / largest
    time = flow_time(values, (vectors.mT @ residual.detach()).square() / (2 * n), goal)
    sums = _Integral.apply(kernel, residual, values, vectors, time)
    left = residual - kernel @ sums
    slope = -(left @ kernel @ left).detach() / n
    later = time - (left.square().sum() / (2 * n) - goal) / slope if time < LONGEST / 2 else z.sum() * 0 + time
    return later.log(), layers.moved(z, (sums + left.detach() * (later - time)) / largest)


def edge(moved: Float[Tensor, " parts"]) -> Float[Tensor, ""]:
    r"""Return :math:`(\log \sum_i m_i^2)^2`, which is zero where the parameters move by their own size.

    A linear model holds while all :math:`m_i`, displacements over spectral norms, are small. It says that a smaller
    product of the gains is no worse, and nothing of what a moving kernel brings; so the product is taken where the
    model ends, :math:`\sum_i m_i^2 = 1` (`claims-design`, "The product of the gains").
    """
    return moved.sum().log().square()


def flow_time(values: Float[Tensor, " nk"], squares: Float[Tensor, " nk"], goal: float) -> float:
    r"""Return when :math:`\sum_j s_j e^{-2 \lambda_j t}` has fallen to a goal, at most 1e9, by bisection."""
    low, high = -20.0, math.log(LONGEST)
    for _ in range(60):
        middle = (low + high) / 2
        above = (squares * (-2 * values * math.exp(middle)).exp()).sum() > goal
        low, high = (middle, high) if above else (low, middle)
    return math.exp(high)


class _Integral(torch.autograd.Function):
    r"""The sum of residuals over time, :math:`\int_0^t e^{-s K} r\, ds = \varphi(K) r`.

    The derivative by K has divided differences of :math:`\varphi` in the eigenvectors (Daleckii and Krein), and where
    eigenvalues are close the derivative of :math:`\varphi`: it is finite where they coincide.
    """

    @staticmethod
    def forward(ctx, kernel, residual, values, vectors, time):
        sums = -torch.expm1(-time * values) / values.clamp_min(1e-300)
        sums = torch.where(values * time < 1e-12, torch.full_like(sums, time), sums)
        ctx.save_for_backward(residual, values, vectors, sums)
        ctx.time = time
        return vectors @ (sums * (vectors.mT @ residual))

    @staticmethod
    def backward(ctx, gradient):
        residual, values, vectors, sums = ctx.saved_tensors
        decayed = (-ctx.time * values).exp()
        slopes = (ctx.time * decayed - sums) / values.clamp_min(1e-300)
        slopes = torch.where(values * ctx.time < CLOSE, -(ctx.time**2) / 2 * (1 - values * ctx.time / 1.5), slopes)
        apart = values[:, None] - values
        near = apart.abs() * ctx.time <= CLOSE
        quotients = (sums[:, None] - sums) / torch.where(near, 1.0, apart)
        quotients = torch.where(near, (slopes[:, None] + slopes) / 2, quotients)
        of_gradient, of_residual = vectors.mT @ gradient, vectors.mT @ residual
        middle = quotients * torch.outer(of_gradient, of_residual)
        by_kernel = vectors @ (middle + middle.mT) @ vectors.mT / 2
        return by_kernel, vectors @ (sums * of_gradient), None, None, None
