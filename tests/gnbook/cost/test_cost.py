"""Networks of the sizes that are in use, what is foretold of their cost, and the race of eigensolvers."""

import pytest
import torch
from gnbook.cost.networks import cnn, contracted
from gnbook.cost.race import LowerEnd
from gnbook.shared.hidden_layer import leaky_relu_gram

import gnlib


def network(widths, smallest):
    """The Gauss-Newton matrix of a linear network whose data have variances from 1 down to this one."""
    weights = gnlib.linear_weights(widths, generator=torch.Generator().manual_seed(0))
    return gnlib.linear_gauss_newton(weights, torch.logspace(0, smallest, widths[0], dtype=torch.float64).diag())


def leaky_relu():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 40, generator=generator, dtype=torch.float64)
    return leaky_relu_gram(gnlib.linear_weights([40, 100, 3], generator=generator), x, 0.01)


def prepared(operand):
    """The lower end of an operand, its matrix and its eigenvalues."""
    if isinstance(operand, torch.Tensor):
        values = torch.linalg.eigvalsh(operand)
        return LowerEnd.of_gram(operand, 3, values[-1].item()), operand, values[0].item()
    found = gnlib.condition_number(operand, method="dense")
    return LowerEnd.of_sum(operand, found.largest), operand.dense(), found.smallest


REGULAR = {
    "white": network([60, 80, 80, 80, 8], 0),
    "graded": network([60, 80, 80, 80, 8], -6),
    "leaky ReLU": leaky_relu(),
}


@pytest.mark.parametrize("operand", REGULAR.values(), ids=REGULAR)
def test_all_of_them_find_the_smallest_eigenvalue_of_the_same_matrix(operand):
    end, matrix, exact = prepared(operand)
    for run in (end.ours, end.scipy, end.torch):
        assert run().value == pytest.approx(exact, rel=2e-8)
    theirs, ours = torch.linalg.eigvalsh(end.matrix) * end.scale, torch.linalg.eigvalsh(matrix)
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-12 * ours[-1].item())
    assert torch.linalg.eigvalsh(end.dense_inverse)[0] > 0
    assert exact <= end.guess * end.scale * (1 + 1e-8)


def test_the_direct_way_has_the_matrix_of_the_way_by_layers():
    torch.manual_seed(0)
    network, x = cnn().double(), torch.randn(3, 3, 16, 16, dtype=torch.float64)
    torch.testing.assert_close(contracted(network, x), gnlib.GaussNewton(network, x).gram())
