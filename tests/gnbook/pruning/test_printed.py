"""The numbers that the public notebooks print: which eigenvalue their curves are divided by."""

import numpy as np
import pytest
from gnbook.pruning import printed


@pytest.mark.parametrize(("share", "logarithm"), [(0.2, 10.36555738), (0.4, 10.68632317)])
def test_the_curves_are_the_largest_eigenvalues_over_one_number(share, logarithm):
    """The notebook prints the logarithm of each curve's sum; no other eigenvalue would give that."""
    assert np.log(printed.ratios("ResNet20", share).drawn.sum()) == pytest.approx(logarithm, abs=1e-5)
    assert np.log(printed.ratios("ResNet20", share).own.sum()) > logarithm + 1


@pytest.mark.parametrize(("share", "logarithm"), [(0.0, 10.25518654), (0.6, 16.27353429), (0.8, 17.47366568)])
def test_where_fewer_eigenvalues_count_the_divisor_is_larger_by_less_than_seven(share, logarithm):
    assert 0 <= np.log(printed.ratios("ResNet20", share).drawn.sum()) - logarithm < np.log(7)


def test_the_other_notebook_divides_by_eigenvalues_of_the_same_spectrum():
    sums = 16.08322677, 16.76273067, 16.42153564, 17.60638548
    for share, logarithm in zip(printed.SHARES, sums, strict=False):
        line = printed.SHARES.index(share)
        largest, smallest = (np.array(ends["ResNet32"][line]) for ends in (printed.LARGEST, printed.SMALLEST))
        assert np.log((largest / smallest).sum()) == pytest.approx(logarithm, abs=1e-5)


def test_what_is_rounding_is_no_condition_number():
    """The whole ResNet20 at epoch 20 has a negative eigenvalue; without 80 %, both networks have nothing else."""
    assert np.isnan(printed.ratios("ResNet20", 0.0).own).tolist() == [False, True, False, False, False, False]
    for network in printed.LARGEST:
        assert np.isnan(printed.ratios(network, 0.8).own).all()
    known = (printed.ratios("ResNet32", share).own for share in printed.SHARES[:-1])
    assert all(ratio[np.isfinite(ratio)].max() < 1 / np.finfo(np.float32).eps for ratio in known)
