"""What the tests of several modules of the eigen core need: spectra with clusters at both ends, and what is right."""

import numpy as np
import pytest
import torch

EPS = 2.0**-52
SIZE = 510  # divided by every number of outputs in test_gram.py


def double(values):
    return torch.as_tensor(values, dtype=torch.float64)


def eye(n):
    return torch.eye(n, dtype=torch.float64)


def assert_right(result, largest, smallest, rank, factor=10):
    """Both ends are right to a small multiple of the error stated."""
    assert result.rank == rank
    assert result.largest == pytest.approx(float(largest), rel=factor * min(result.residual, 1e-9) + 1e-12)
    assert result.smallest == pytest.approx(float(smallest), rel=factor * result.residual + 1e-12)


def assert_ends(result, values, rank, tolerance=1e-8):
    """Compare with descending eigenvalues of which `rank` are not zero."""
    assert result.rank == rank
    assert result.largest == pytest.approx(float(values[0]), rel=tolerance)
    assert result.smallest == pytest.approx(float(values[rank - 1]), rel=tolerance)
    assert float(result) == pytest.approx(float(values[0] / values[rank - 1]), rel=2 * tolerance)  # it is resolved


def spectrum_of(lower, upper, size=SIZE, *, least=1e-6, seed=0):
    """Two clusters, of these numbers of eigenvalues and relative widths, and random eigenvalues between."""
    random = np.random.default_rng(seed)
    (low, low_width), (high, high_width) = lower, upper
    between = np.exp(random.uniform(np.log(min(2 * least, 0.5)), np.log(0.9), size - low - high))
    ends = least * (1 + low_width * random.random(low)), 1 - high_width * random.random(high)
    return double(np.concatenate([ends[0], between, ends[1]])).sort().values


ENDS = [(1, 0.0), (3, 0.0), (10, 0.0), (25, 0.0), (3, 1e-14), (10, 1e-10), (25, 1e-6), (10, 1e-3)]
ends = pytest.mark.parametrize("lower, upper", list(zip(ENDS, ENDS[3:] + ENDS[:3], strict=True)), ids=str)
