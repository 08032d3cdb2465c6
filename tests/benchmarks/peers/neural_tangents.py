"""neural-tangents: the empirical kernel of any function in JAX; its structured derivatives need a JAX of 2023."""

import sys
from types import ModuleType

# Its experimental part loads TensorFlow, of 1.9 GiB, and nothing of it is needed here.
sys.modules["neural_tangents.experimental"] = ModuleType("neural_tangents.experimental")

import jax  # noqa: E402
import numpy as np  # noqa: E402

from tests.benchmarks.peers.in_jax import gradient, network  # noqa: E402, F401

PACKAGES = ("neural-tangents", "jax")
NO_PRODUCT = "It has the kernel of all outputs, and no product of a matrix with a vector."
CANNOT = {"product": NO_PRODUCT, "largest eigenvalue": NO_PRODUCT}
jax.config.update("jax_enable_x64", True)


def gram(problem):
    import neural_tangents as nt

    outputs, weights, x = network(problem)
    way = nt.NtkImplementation.JACOBIAN_CONTRACTION
    given = lambda weights, x, **_: outputs(weights, x)  # noqa: E731 (with options, of which it has none)
    kernel = jax.jit(nt.empirical_ntk_fn(given, trace_axes=(), vmap_axes=0, implementation=way))

    def found():
        its = np.asarray(kernel(x, None, weights))  # samples, samples, outputs, outputs
        rows = its.shape[0] * its.shape[2]
        return its.transpose(0, 2, 1, 3).reshape(rows, rows) / len(x)

    return found
