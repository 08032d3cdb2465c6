"""curvlinops: its GGNLinearOperator, and SciPy's Lanczos, for which it has `to_scipy`."""

from scipy.sparse.linalg import LinearOperator, eigsh
from torch import nn

from tests.benchmarks.peers.networks import array, gradient, in_torch, vector  # noqa: F401

PACKAGES = ("curvlinops-for-pytorch", "torch")
CANNOT = {"Gram matrix": "It has products with the Jacobian, and no matrix of the outputs."}


def linear_operator(problem):
    from curvlinops import GGNLinearOperator

    module, x, y = in_torch(problem)
    parameters = [*module.parameters()]
    return GGNLinearOperator(module, nn.CrossEntropyLoss(), parameters, [(x, y)], check_deterministic=False)


def product(problem):
    linear, v = linear_operator(problem), vector(problem)
    return lambda: array(linear @ v)


def largest(problem, tolerance=1e-3):
    its = linear_operator(problem).to_scipy()

    def found():
        products = []

        def counted(v):
            products.append(1)
            return its @ v

        value = eigsh(LinearOperator(its.shape, counted, dtype=its.dtype), 1, tol=tolerance)[0][0]
        return float(value), len(products)

    return found
