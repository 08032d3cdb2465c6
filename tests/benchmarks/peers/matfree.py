"""matfree: Lanczos on any function in JAX; the product with the matrix is the user's own, here JAX by hand."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.benchmarks.peers.common import LANCZOS
from tests.benchmarks.peers.in_jax import gradient, product_of  # noqa: F401

PACKAGES = ("matfree", "jax")
CANNOT = {"Gram matrix": "It has no matrix of the outputs."}


def product(problem):
    of, v = jax.jit(product_of(problem)), jnp.asarray(problem.v)
    return lambda: np.asarray(of(v))


def largest(problem):
    from matfree import decomp, eig

    of = product_of(problem)
    start = jax.random.normal(jax.random.PRNGKey(0), problem.v.shape)
    values = jax.jit(lambda v: eig.eigh_partial(decomp.tridiag_sym(LANCZOS))(of, v)[0].max())
    return lambda: (float(values(start)), LANCZOS)
