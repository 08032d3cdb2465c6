"""Both ends of a symmetric operator by restarted Lanczos iterations."""

import pytest
import torch
from gnbook.shared.lanczos import symmetric_ends

from gnlib import NotConvergedError
from tests.strategies import gaussian


@pytest.mark.parametrize("values", [[-3.0, -1.0, 0.5, 2.0], [1.0, 2.0], [-2.0, -1.0], [0.0, 0.0, 0.0], [5.0]])
@pytest.mark.parametrize("copies", [1, 20])
def test_prescribed_spectra(values, copies):
    spectrum = torch.tensor(values).double().repeat(copies)
    q = torch.linalg.qr(gaussian(0, len(spectrum), len(spectrum))).Q
    matrix = q * spectrum @ q.mT
    ends = symmetric_ends(lambda v: matrix @ v, gaussian(1, len(spectrum)))
    assert (ends.smallest, ends.largest) == pytest.approx((min(values), max(values)), abs=1e-9)
    assert ends.norm == pytest.approx(max(map(abs, values)), abs=1e-9)


def test_all_products_are_counted():
    taken = []

    def apply(v):
        taken.append(v)
        return torch.arange(1.0, 41.0).double() * v

    assert symmetric_ends(apply, gaussian(1, 40)).products == len(taken)


def test_restarts_lose_nothing():
    spectrum = torch.linspace(-1, 1.2, 400, dtype=torch.float64) ** 3
    whole, restarted = (symmetric_ends(lambda v: spectrum * v, gaussian(1, 400), held=held) for held in (500, 12))
    assert restarted.products > 24
    assert (restarted.smallest, restarted.largest) == pytest.approx((whole.smallest, whole.largest), abs=1e-9)
    assert restarted.largest == pytest.approx(1.2**3, abs=1e-9)


@pytest.mark.bad_input
def test_the_residual_is_computed_anew():
    shear = torch.eye(30).double() + torch.diag(gaussian(0, 29), 1)  # not symmetric: the recurrence does not notice
    with pytest.raises(NotConvergedError, match="did not converge"):
        symmetric_ends(lambda v: shear @ v, gaussian(1, 30))
