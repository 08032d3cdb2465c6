"""hessian-eigenthings: its GGNOperator, and its Lanczos, which takes the number of its steps from the user."""

from torch import nn

from tests.benchmarks.peers.common import LANCZOS
from tests.benchmarks.peers.networks import array, gradient, in_torch, vector  # noqa: F401

PACKAGES = ("hessian-eigenthings", "torch")
CANNOT = {"Gram matrix": "It has no matrix of the outputs."}


def operator(problem):
    from hessian_eigenthings import GGNOperator, supervised_forward, supervised_loss_of_output

    module, x, y = in_torch(problem)
    return GGNOperator(module, [(x, y)], supervised_forward, supervised_loss_of_output(nn.CrossEntropyLoss()))


def product(problem):
    matrix, v = operator(problem), vector(problem)
    return lambda: array(matrix.matvec(v))


def largest(problem, tolerance=1e-3):
    from hessian_eigenthings import lanczos

    matrix = operator(problem)

    def found():
        result = lanczos(matrix, k=1, max_iter=LANCZOS, tol=tolerance, seed=0)
        return float(result.eigenvalues[0]), result.iterations

    return found
