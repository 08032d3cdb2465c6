"""A matrix, an operator, data or outputs times a power of two: the same result times it, or a refusal."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

import gnlib
from gnlib import GaussNewton, SecondMoment, condition_number, largest_eigenvalue, linear_gauss_newton
from gnlib.eigen.dense import singular_value_ends
from gnlib.operators import SymmetricOperator
from tests.gnlib.eigen.helpers import SIZE, double, eye
from tests.gnlib.networks import Whole
from tests.oracles import network, normal, orthogonal, samples, with_spectrum

SPECTRA = {"diagonal": np.array([1.0, 5.0, 3.0, 2.0]), "clustered": np.array([1.0] * 8 + [1 + 1e-12] * 4)}
SPECTRA |= {"of rank one": np.array([0.0] * 9 + [7.0]), "graded": np.logspace(-14, 0, 12)}
SPECTRA["many"] = np.linspace(1, 9, SIZE)


def same_but_for(power, found, expected, tolerance=1e-13):
    """Whether both ends are those expected times a power, and the rest of the result is the same."""
    assert found.largest == pytest.approx(expected.largest * power, rel=tolerance, abs=0)
    assert found.smallest == pytest.approx(expected.smallest * power, rel=max(tolerance, expected.residual), abs=0)
    assert found.value == pytest.approx(expected.value, rel=max(tolerance, expected.residual))
    assert (found.rank, found.method) == (expected.rank, expected.method)


@pytest.mark.parametrize("power", [2.0**e for e in (-960, -600, -400, 0, 400, 600, 960)])
@pytest.mark.parametrize("kind", SPECTRA)
def test_the_ends_of_a_matrix(power, kind):
    spectrum = SPECTRA[kind]
    matrix = double(spectrum).diag() if kind == "diagonal" else with_spectrum(spectrum, seed=1)
    found = largest_eigenvalue(matrix * power)
    assert found.value == pytest.approx(max(spectrum) * power, rel=1e-8, abs=0)
    assert found.error <= 1e-8
    same_but_for(power, condition_number(matrix * power), condition_number(matrix))


@pytest.mark.parametrize("widths", [(5, 7, 3), (9, 4, 6, 2), (5, 6, 6, 6, 6, 2)], ids=str)
@pytest.mark.parametrize("white", [True, False])
@pytest.mark.parametrize("power", [2.0**-450, 2.0**-250, 2.0**450])
def test_data_of_another_scale(power, white, widths):
    x, weights = samples(20, widths[0], seed=5), network(widths, seed=1)
    x = gnlib.whiten(x) if white else x
    expected = condition_number(linear_gauss_newton(weights, SecondMoment.from_data(x)))
    same_but_for(power**2, condition_number(linear_gauss_newton(weights, SecondMoment.from_data(x * power))), expected)
    of_matrix = condition_number(linear_gauss_newton(weights, gnlib.second_moment(x * power)))
    assert of_matrix.value == pytest.approx(expected.value, rel=1e-9)


def attention():
    def forward(self, x):
        q, k, v = self.parts(x).chunk(3, -1)
        return self.head((q @ k.mT / 2).softmax(-1) @ v).mean(1)

    return Whole(forward, parts=nn.Linear(4, 12), head=nn.Linear(4, 2))


MODULES = {
    "conv": lambda: nn.Sequential(nn.Conv1d(1, 3, 2), nn.SiLU(), nn.Flatten(), nn.Linear(9, 2)),
    "attention": attention,
}


def times(scale, kind):
    torch.manual_seed(9)
    module = MODULES[kind]().double()
    x = torch.randn((6, 1, 4) if kind == "conv" else (6, 3, 4), dtype=torch.float64)
    return GaussNewton(module, x, output=lambda y: y * scale)


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("power", [2.0**-500, 2.0**-300, 2.0**500])
def test_outputs_of_another_scale(kind, power):
    expected, found = times(1.0, kind), times(power, kind)
    ends = dataclasses.replace(expected.condition_number(), method=found.condition_number().method)
    same_but_for(power**2, found.condition_number(), ends, 1e-9)
    assert found.largest_eigenvalue().value == pytest.approx(ends.largest * power**2, rel=1e-8, abs=0)
    if power > 2.0**-480:
        assert found.culprits().samples[0][0] == expected.culprits().samples[0][0]


class Product(SymmetricOperator):
    """J^T J by its two products, of which the first may leave the range."""

    def __init__(self, jacobian):
        super().__init__(jacobian.shape[1], jacobian.dtype, jacobian.device)
        self.jacobian = jacobian

    def matmul(self, v):
        return self.jacobian.T @ (self.jacobian @ v)


J = normal(5, 4, seed=1)
REFUSED = {
    "a matrix below the range": lambda: condition_number(eye(3) * 1e-310),
    "an end below the range": lambda: condition_number(torch.diag(double([1e-305, 1e-313]))),
    "an operator above the range": lambda: largest_eigenvalue(Product(J * 1e200)),
    "an operator below the range": lambda: largest_eigenvalue(Product(J * 1e-200)),
    "data above the range": lambda: SecondMoment.from_data(J * 1e155),
    "data below the range": lambda: gnlib.second_moment(J * 1e-160),
    "a moment above the range": lambda: gnlib.second_moment(J * 1e155),
    "a factor above the range": lambda: singular_value_ends([orthogonal(4, 4, seed=1) * 1e200]),
    "weights above the range": lambda: condition_number(
        linear_gauss_newton([J.T, normal(2, 4, seed=1) * 1e200], eye(5))
    ),
    **{
        f"{kind} times {scale:g}: {call}": lambda kind=kind, scale=scale, call=call: getattr(times(scale, kind), call)()
        for kind in ("conv", "attention")
        for scale in (1e-170, 1e-158, 1e160, 1e250)
        for call in ("condition_number", "largest_eigenvalue", "culprits", "gram")
    },
}


@pytest.mark.bad_input
@pytest.mark.parametrize("case", REFUSED)
def test_what_double_precision_has_no_digits_for_is_refused(case):
    with pytest.raises(ValueError, match=r"is about 1e[+-][345]|squares of the Jacobian|or its square, has NaN"):
        REFUSED[case]()
