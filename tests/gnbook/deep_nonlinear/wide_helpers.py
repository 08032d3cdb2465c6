"""Networks of finite width and expectations by other means, which the limit of wide networks is compared with."""

import math
from itertools import pairwise

import mpmath
import scipy
import torch
from gnbook.deep_nonlinear.duals import leaky_relu, smooth

import gnlib
from tests.strategies import gaussian


def erf(q):
    """The dual of the error function at a covariance (Williams 1997)."""
    sides = 1 + 2 * q.diagonal()
    product = torch.outer(sides, sides)
    slopes = 4 / math.pi / (product - 4 * q.square()).sqrt()
    return 2 / math.pi * (2 * q / product.sqrt()).asin(), slopes


KAIMING = 2**0.5
NETWORKS = {  # activation, its dual, gain
    "relu": (torch.relu, leaky_relu(0.0), KAIMING),
    "leaky relu": (lambda z: torch.nn.functional.leaky_relu(z, 0.3), leaky_relu(0.3), (2 / 1.09) ** 0.5),
    "erf": (torch.erf, erf, 1.2),
    "tanh": (torch.tanh, smooth(torch.tanh), 1.0),
    "gelu": (torch.nn.functional.gelu, smooth(torch.nn.functional.gelu), 1.3),
}


def finite_weights(widths, gain, seed):
    return [gain * w for w in gnlib.linear_weights(widths, generator=torch.Generator().manual_seed(seed))]


def finite_forward(weights, x, activation, branch=None):
    """Outputs, with inputs and outputs of each layer of weights."""
    values = x @ weights[0].mT
    inputs, products = [x], [values]
    for index, w in enumerate(weights[1:], start=2):
        inputs.append(activation(values))
        products.append(inputs[-1] @ w.mT)
        last = branch is None or index == len(weights)
        values = products[-1] if last else values + branch * products[-1]
    return values, inputs, products


def finite_kernel(weights, x, activation, branch=None, factors=None):
    """The kernel of one output: of each layer the Gram matrices of its inputs and of derivatives by its products."""
    weights = [weights[0].clone().requires_grad_(), *weights[1:]]
    outputs, inputs, products = finite_forward(weights, x, activation, branch)
    slopes = torch.autograd.grad(outputs.sum(), products)
    terms = [(f @ f.mT).detach() * (g @ g.mT) for f, g in zip(inputs, slopes, strict=True)]
    return sum(c * term for c, term in zip(factors or [1.0] * len(terms), terms, strict=True))


def jacobian_kernel(weights, x, activation, branch=None):
    """The same for all outputs, from the whole Jacobian by automatic differentiation."""
    each = torch.func.jacrev(lambda w: finite_forward(w, x, activation, branch)[0].flatten())(weights)
    rows = torch.cat([block.flatten(1) for block in each], 1)
    return rows @ rows.mT


def on_a_sphere(n, d, seed=0, radius=None):
    x = gaussian(seed, n, d)
    return x / x.norm(dim=1, keepdim=True) * (d**0.5 if radius is None else radius)


def kappa(matrix):
    values = torch.linalg.eigvalsh(matrix)
    return (values[-1] / values[0]).item()


def on_a_grid(first, second, variances, cosine):
    """The mean of first(u) second(v) by the trapezoidal rule, which is accurate for smooth functions."""
    z = torch.linspace(-12, 12, 401, dtype=torch.float64)
    density = (z[1] - z[0]) * (-(z**2) / 2).exp() / (2 * math.pi) ** 0.5
    u = variances[0] ** 0.5 * z
    v = variances[1] ** 0.5 * (cosine * z[:, None] + (1 - cosine**2) ** 0.5 * z)
    return (density @ (first(u)[:, None] * second(v)) @ density).item()


def on_a_circle(first, second, theta, power):
    """The same for functions of degree power / 2 in a positive factor, from their values on a circle."""
    kinks = sorted(t % (2 * math.pi) for t in (math.pi / 2, -math.pi / 2, math.pi / 2 + theta, theta - math.pi / 2))
    ends = [0.0, *kinks, 2 * math.pi]
    pieces = [
        scipy.integrate.quad(lambda t: first(math.cos(t)) * second(math.cos(t - theta)), a, b, epsabs=1e-13)[0]
        for a, b in pairwise(ends)
        if b > a
    ]
    return sum(pieces) * (2 if power == 2 else 1) / (2 * math.pi)  # the mean of the squared radius is 2


def exact_pair(theta, depth, bend=1.0, digits=40):
    """Angle and off-diagonal share of the kernel of two samples of one norm behind deep leaky ReLUs, by mpmath."""
    with mpmath.workdps(digits):
        cosine, s = mpmath.cos(mpmath.mpf(theta)), mpmath.mpf(bend)
        kernel = cosine
        for _ in range(depth - 1):
            angle = mpmath.acos(cosine)
            cosine += s / mpmath.pi * (mpmath.sin(angle) - angle * cosine)
            kernel = kernel * (1 - s * angle / mpmath.pi) + cosine
        return float(mpmath.acos(cosine)), float(kernel / depth)
