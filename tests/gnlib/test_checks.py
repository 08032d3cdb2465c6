"""What is no network of weights is told so."""

import pytest
import torch

from gnlib import linear_gauss_newton

GOOD = (torch.ones(3, 2), torch.ones(4, 3))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "weights, error, message",
    [
        ([], ValueError, "weights is empty; a network needs at least one"),
        ([GOOD[1], GOOD[0]], ValueError, r"weights\[1\] takes 2 inputs but weights\[0\] gives 4 outputs"),
        ([*GOOD, torch.ones(5)], ValueError, r"weights\[2\] has shape \(5,\); a matrix"),
        ([*GOOD, torch.ones(1, 2, 4)], ValueError, r"weights\[2\] has shape \(1, 2, 4\); a matrix"),
        ([torch.empty(0, 2), torch.empty(4, 0)], ValueError, r"weights\[0\] is empty \(shape \(0, 2\)\)"),
        ([GOOD[0], torch.full((4, 3), torch.nan)], ValueError, r"weights\[1\] has 12 entries that are NaN"),
        ([GOOD[0] / 0, GOOD[1]], ValueError, r"weights\[0\] has 6 entries that are NaN or infinite"),
        ([GOOD[0], GOOD[1].numpy()], TypeError, r"weights\[1\] is of type ndarray; pass a torch tensor"),
        ([GOOD[0], GOOD[1].to(torch.complex64)], TypeError, r"weights\[1\] is complex \(torch.complex64\)"),
    ],
)
def test_weights_that_are_no_network_are_refused(weights, error, message):
    with pytest.raises(error, match=message):
        linear_gauss_newton(weights, torch.eye(2))
