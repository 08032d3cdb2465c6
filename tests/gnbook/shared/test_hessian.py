"""Both ends of the spectrum of a Hessian, and how far a tangent kernel moves."""

import pytest
import torch
from gnbook.shared.extremes import resolved_squares
from gnbook.shared.hessian import Hessian, hessian_ends, kernel_change, moved
from gnbook.shared.lanczos import symmetric_ends
from gnbook.transition_to_linearity.wide_network import WideNetwork, normal_weights
from torch import nn

from gnlib import NotConvergedError
from tests.oracles import orthogonal, with_spectrum
from tests.strategies import derivatives, gaussian


def seeded(seed, *layers):
    """Build a module with parameters that depend on the seed alone, in double precision."""
    module = nn.Sequential(*layers).double()
    for index, p in enumerate(module.parameters()):
        p.data = gaussian(seed + index, *p.shape) / p.shape[-1] ** 0.5
    return module


def perceptron(seed):
    return seeded(seed, nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 1))


def autograd_hessian(module, x):
    """The matrix of second derivatives of the one output, by two backward passes through plain autograd."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    gradient = torch.autograd.grad(module(x).sum(), parameters, create_graph=True, materialize_grads=True)
    entries = torch.cat([g.flatten() for g in gradient]) + 0 * module(x).sum()  # some may be constant
    return derivatives(entries, parameters)


CASES = {
    "perceptron": (perceptron(0), gaussian(1, 1, 3)),
    "normalised": (seeded(6, nn.Linear(3, 4), nn.LayerNorm(4), nn.Softplus(), nn.Linear(4, 1)), gaussian(7, 1, 3)),
    "filters": (seeded(8, nn.Conv1d(1, 2, 3), nn.SiLU(), nn.Flatten(), nn.Linear(6, 1)), gaussian(9, 1, 1, 5)),
    "linear": (seeded(10, nn.Linear(3, 1)), gaussian(11, 1, 3)),
    "frozen": (perceptron(13), gaussian(1, 1, 3)),
    "input zero": (perceptron(12), torch.zeros(1, 3, dtype=torch.float64)),
    "wide": (
        WideNetwork(normal_weights([2, 5, 5, 1], generator=torch.Generator().manual_seed(0)), skip=True),
        gaussian(1, 1, 2),
    ),
}
CASES["frozen"][0][0].requires_grad_(False)


@pytest.mark.parametrize("name", CASES)
def test_the_operator_is_the_matrix_of_second_derivatives_and_its_ends_are_the_extreme_eigenvalues(name):
    module, x = CASES[name]
    oracle, hessian = autograd_hessian(module, x), Hessian(module, x)
    assert hessian.shape == tuple(oracle.shape) and hessian.dtype == torch.float64
    assert torch.allclose(hessian.dense(), oracle, atol=1e-12)
    v = gaussian(20, len(oracle), 2)
    assert torch.allclose(hessian @ v, oracle @ v, atol=1e-11)
    values, ends = torch.linalg.eigvalsh(oracle), hessian_ends(module, x)
    assert torch.allclose(torch.tensor([ends.smallest, ends.largest]).double(), values[[0, -1]], atol=1e-9)
    assert ends.norm == pytest.approx(values.abs().max().item(), abs=1e-9)
    assert torch.allclose(hessian @ ends.vectors[1], ends.largest * ends.vectors[1], atol=1e-5)


def test_the_gradient_of_the_curvature_is_its_slope():
    module, x = perceptron(0), gaussian(1, 1, 3)
    p = Hessian(module, x).shape[0]
    v, step = gaussian(2, p), 1e-4 * gaussian(3, p)

    def curvature():
        return v @ (Hessian(module, x) @ v)

    slope = Hessian(module, x).curvature_gradient(v) @ step
    with moved(module, step):
        ahead = curvature()
    with moved(module, -step):
        behind = curvature()
    assert torch.isclose((ahead - behind) / 2, slope, rtol=1e-5)


@pytest.mark.parametrize("values", [[-3.0, -1.0, 0.5, 2.0], [1.0, 2.0], [-2.0, -1.0], [0.0, 0.0, 0.0], [5.0]])
@pytest.mark.parametrize("copies", [1, 20])
def test_prescribed_spectra(values, copies):
    spectrum = torch.tensor(values).double().repeat(copies)
    matrix = with_spectrum(spectrum, seed=0)
    ends = symmetric_ends(lambda v: matrix @ v, gaussian(1, len(spectrum)))
    assert (ends.smallest, ends.largest) == pytest.approx((min(values), max(values)), abs=1e-9)
    assert ends.norm == pytest.approx(max(map(abs, values)), abs=1e-9)


def test_what_takes_more_products_has_not_converged():
    spectrum = torch.linspace(-1, 1.2, 400, dtype=torch.float64) ** 3
    with pytest.raises(NotConvergedError):
        symmetric_ends(lambda v: spectrum * v, gaussian(1, 400), max_steps=24)
    assert symmetric_ends(lambda v: spectrum * v, gaussian(1, 400)).largest == pytest.approx(1.2**3, abs=1e-9)


def test_a_small_singular_value_is_resolved_and_rounding_is_not():
    q = orthogonal(3, 3, seed=0)
    for least, expected in ((1e-10, 1e-20), (1e-17, 0.0)):
        matrix = q @ torch.tensor([1.0, 1.0, least], dtype=torch.float64).diag()
        largest, smallest = resolved_squares(matrix)
        assert largest.item() == pytest.approx(1) and smallest.item() == pytest.approx(expected, rel=1e-4, abs=0)


def test_the_relative_change_of_a_kernel():
    before = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    assert kernel_change(before, before) == 0
    assert kernel_change(before, before + torch.tensor([[0.0, 1.0], [1.0, 0.0]])) == pytest.approx(2**0.5 / 5)
