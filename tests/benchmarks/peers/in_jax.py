"""The perceptron and the CNN in JAX, with the weights as torch has them, and the gradient of their loss."""

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from tests.benchmarks.peers.common import MATRICES, Unable


def network(problem):
    """Return the function of weights and data, the weights in the order of torch's parameters, and the data."""
    if problem.network not in MATRICES:  # which are plain enough to be written twice
        raise Unable("It is JAX, where the perceptron and the CNN alone are written.")
    weights = [jnp.asarray(weight) for weight in problem.weights.values()]

    def outputs(weights, x):
        *hidden, (last, bias) = zip(weights[::2], weights[1::2], strict=True)
        h = x
        for weight, shift in hidden:
            if weight.ndim == 4:
                h = jax.lax.conv_general_dilated(h, weight, (2, 2), ((1, 1), (1, 1))) + shift[:, None, None]
            else:
                h = h.reshape(len(x), -1) @ weight.T + shift
            h = jax.nn.relu(h)
        return h.reshape(len(x), -1) @ last.T + bias

    return outputs, weights, jnp.asarray(problem.x)


def gradient(problem):
    outputs, weights, x = network(problem)
    y = jnp.asarray(problem.y)

    @jax.jit
    def differentiated(weights):
        def loss(weights):
            return -jnp.take_along_axis(jax.nn.log_softmax(outputs(weights, x)), y[:, None], 1).mean()

        return jax.grad(loss)(weights)

    return lambda: jax.block_until_ready(differentiated(weights))


def product_of(problem):
    """Return the product with the Gauss-Newton matrix, a function of a vector, as one writes it in JAX."""
    outputs, weights, x = network(problem)
    _, unravel = ravel_pytree(weights)

    def of(v):
        f, change = jax.jvp(lambda weights: outputs(weights, x), (weights,), (unravel(v),))
        _, back = jax.vjp(lambda weights: outputs(weights, x), weights)
        p = jax.nn.softmax(f)
        return ravel_pytree(back((p * change - p * (p * change).sum(1, keepdims=True)) / len(f)))[0]

    return of
