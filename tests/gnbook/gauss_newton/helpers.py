"""Small networks and losses that the claims on the Gauss-Newton matrix are tried on, with their derivatives."""

import torch
from hypothesis import strategies as st

from tests.strategies import gaussian, seeds


@st.composite
def smooth_networks(draw):
    """Draw a small network with one hidden layer and biases: f(theta) of shape (n, k), and theta."""
    d, m, k, n, seed = *(draw(st.integers(1, 3)) for _ in "dmkn"), draw(seeds)
    activation = draw(st.sampled_from([torch.tanh, torch.nn.functional.softplus, torch.sin, torch.square, lambda z: z]))
    x, theta = gaussian(seed, n, d), gaussian(seed + 1, m * d + m + k * m)
    if draw(st.booleans()):
        x = x[:1].expand(n, d)  # repeated samples: a Gauss-Newton matrix of low rank

    def f(theta):
        v, b, w = theta.split([m * d, m, k * m])
        return activation(x @ v.reshape(m, d).mT + b) @ w.reshape(k, m).mT

    return f, theta


LOSSES = {  # of outputs f and targets y, a sample
    "half squared error": lambda f, y: (f - y).square().sum() / 2,
    "squared error": lambda f, y: (f - y).square().sum(),
    "mean squared error": lambda f, y: (f - y).square().mean(),
    "cross-entropy": lambda f, y: torch.logsumexp(f, 0) - f @ torch.softmax(y, 0),
}


def gradients(outputs, theta):
    """Return the derivatives of each output, of shape (*outputs, p)."""
    if not outputs.requires_grad:
        return outputs.new_zeros(*outputs.shape, len(theta))
    each = torch.eye(outputs.numel(), dtype=outputs.dtype).reshape(-1, *outputs.shape)
    options = {"is_grads_batched": True, "create_graph": True, "materialize_grads": True}
    return torch.autograd.grad(outputs, theta, each, **options)[0].reshape(*outputs.shape, -1)


def derivatives(f, theta):
    """Return the value, the first and the second derivatives."""
    theta = theta.clone().requires_grad_()
    value = f(theta)
    first = gradients(value, theta)
    return tuple(z.detach() for z in (value, first, gradients(first, theta)))


def mean_loss(f, y, loss):
    return lambda theta: sum(loss(o, t) for o, t in zip(f(theta), y, strict=True)) / len(y)
