"""Powers of the correlations of samples: Hermite coefficients of the ReLU, and refusals."""

import math

import pytest
import torch
from gnbook.deep_nonlinear.duals import hermite_coefficients
from gnbook.deep_nonlinear.powers import power_floors, relu_squares


def test_the_coefficients_are_those_of_quadrature():
    first = relu_squares(2000)
    assert first[:2].tolist() == pytest.approx([1 / (2 * math.pi), 1 / 4], rel=1e-15)
    assert float(first.sum()) == pytest.approx(0.5, abs=1e-5)  # the mean square; the tail falls like k^-1.5
    z = torch.linspace(-12, 12, 400_001).double()
    weight = torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    polynomials = [torch.ones_like(z), z]
    for k in range(1, 11):
        polynomials.append((z * polynomials[k] - math.sqrt(k) * polynomials[k - 1]) / math.sqrt(k + 1))
    found = [float(torch.trapezoid(z.clamp_min(0) * h * weight, z)) ** 2 for h in polynomials]
    assert found == pytest.approx(relu_squares(12).tolist(), abs=1e-8)
    square = hermite_coefficients(lambda z: z**2, torch.ones(1).double())  # the same polynomials as elsewhere
    assert float(torch.trapezoid(z**2 * polynomials[2] * weight, z)) == pytest.approx(float(square[0, 2].abs()))


def test_samples_of_several_norms_are_refused():
    with pytest.raises(ValueError, match=r"norms of x lie between 1 and 2; samples of one norm were expected"):
        power_floors(torch.diag(torch.tensor([1.0, 2.0])))
