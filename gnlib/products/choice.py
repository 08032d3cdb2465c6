"""Choose between the matrix and products with vectors: by what there is room for, and by counted operations."""

from gnlib.jacobian.network import GIB, count_rows
from gnlib.jacobian.plan import BudgetError
from gnlib.problem import Problem

PRODUCTS = 60  # after which bounds are close, as a rule
LARGEST = 16  # after which the largest eigenvalue is known, as a rule
PASSES = 6  # forward passes that a product counts as: one along a direction takes two, one with its gradient three
EIGEN = 10  # times the cube of the rows: operations of all eigenvalues with their vectors
MINUTE = 1e12  # operations; a matrix that takes fewer is made, for it tells more
ADVANTAGE = 4  # by which products have to be cheaper, for they give bounds and no smallest eigenvalue


def prefers_products(problem: Problem, number: int = PRODUCTS) -> bool:
    """Whether the matrix of a module has no room, or takes over a minute and several times as long as some products."""
    rows = count_rows(problem.networks)
    if 8 * rows**2 > problem.memory * GIB:
        return True
    try:
        cost = problem.cost()
    except BudgetError:
        return True
    matrix = cost.operations + EIGEN * rows**3 * (number > LARGEST)
    once = cost.flops / (cost.forward + cost.backward)  # of a pass for a sample, or for a batch if that is coupled
    products = number * PASSES * once * sum(network.units for network in problem.networks)
    return matrix > max(MINUTE, ADVANTAGE * products)
