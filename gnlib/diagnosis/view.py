"""A Gauss-Newton matrix by its products with vectors, and the residual, from whichever side they are had."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from gnlib.checks import EPS
from gnlib.diagnosis.by_layer import by_layer
from gnlib.diagnosis.waits import residual_of
from gnlib.eigen.quadrature import Jacobi, Lanczos
from gnlib.jacobian.passes import vjp
from gnlib.operators import SymmetricOperator
from gnlib.problem import Problem
from gnlib.products.side import Side


@dataclass(frozen=True, eq=False)
class View:
    """A Gauss-Newton matrix by its products with vectors, and what is left of the loss.

    Attributes
    ----------
    operator
        the matrix, from the side of the outputs or from that of the parameters
    start
        the residual u on the side of the outputs, or the gradient on that of the parameters
    square
        the squared norm of u
    weight
        N, by which sums over samples are divided
    on_outputs
        which side it is
    error
        relative, of a product
    memory
        GiB that vectors may take
    shares
        returns the share of each layer in the eigenvalue of an eigenvector
    """

    operator: SymmetricOperator
    start: Float[Tensor, " s"]
    square: float
    weight: float
    on_outputs: bool
    error: float
    memory: float
    shares: Callable[[Float[Tensor, " s"]], dict[str, float]]

    def jacobi(self, process: Lanczos) -> Jacobi:
        """Return what a process from the start knows of the measure of u."""
        own = process.jacobi
        if self.on_outputs:
            return own
        return own._replace(mass=self.weight * own.mass).divided(self.square)


def view_of_problem(problem: Problem) -> View:
    """Return the view of a network from its outputs, in double precision."""
    u = residual_of(problem)

    def shares(v: Float[Tensor, " s"]) -> dict[str, float]:
        n, k, r = problem.root.shape
        gradients = vjp(problem.networks, problem.memory)((problem.root @ v.view(n, r, 1)).view(n, k))
        return by_layer(problem, {name: float(g.square().sum()) for name, g in gradients.items()})

    square = float(u @ u)
    return View(problem.operator(), u, square, len(problem.outputs), True, EPS, problem.memory, shares)


def view_of_side(side: Side, memory: float) -> View:
    """Return the view of a module from its smaller side."""
    start, square = side.residual

    on_outputs = side.name == "outputs"
    return View(side.operator, start, square, side.weight, on_outputs, side.error, memory, side.by_layer)
