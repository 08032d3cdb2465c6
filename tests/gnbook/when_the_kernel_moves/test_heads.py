"""Outputs that are not linear: slopes, curvatures, losses."""

import pytest
import torch
from gnbook.when_the_kernel_moves.heads import Entrywise, Softmax, output_kernel, swish
from gnbook.when_the_kernel_moves.networks import identity

from tests.gnbook.when_the_kernel_moves.helpers import hess
from tests.strategies import gaussian


@pytest.mark.parametrize("head", [Softmax(), Entrywise(swish), Entrywise(identity), Entrywise(torch.sin)])
@pytest.mark.parametrize("seed", range(2))
def test_slopes_and_curvatures_of_outputs_against_autograd(head, seed):
    f = 3 * gaussian(seed, 4, 3)
    targets = torch.eye(3).double()[[0, 1, 2, 0]]
    slopes = head.slopes(f)
    for i in range(4):
        assert torch.allclose(slopes[i], torch.func.jacrev(head.outputs)(f[i : i + 1])[0, :, 0], atol=1e-13)
    # of the squared error without a residual, so that Gauss-Newton is all
    blocks = hess(lambda f: head.loss(f, targets if isinstance(head, Softmax) else head.outputs(f).detach()), f)
    for i in range(4):
        assert torch.allclose(head.curvature(f)[i], blocks[i, :, i], atol=1e-13)


def test_slopes_that_are_not_symmetric():
    kernel, slopes = gaussian(0, 2, 6, 6), gaussian(1, 2, 3, 2, 2)
    for run in range(2):
        whole = torch.block_diag(*slopes[run])
        assert torch.allclose(output_kernel(kernel, slopes)[run], whole @ kernel[run] @ whole.mT, atol=1e-13)


def test_losses_by_hand():
    f, y = torch.tensor([[[1.0, 2.0], [0.0, 0.0]]]).double(), torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]).double()
    entropy = (torch.log1p(torch.exp(torch.tensor(-1.0).double())) + torch.log(torch.tensor(2.0).double())) / 2
    assert torch.allclose(Softmax().loss(f, y)[0], entropy)
    assert Entrywise(identity).loss(f, y).item() == ((1 + 1) + (1 + 0)) / 2
