"""All image networks: Gram matrices, weights as torch draws them, and sizes that do not fit."""

from functools import partial

import pytest
import torch
from gnbook.pruning.vgg import VGG
from gnbook.pruning.vision_transformer import VisionTransformer
from gnbook.shared.residual_network import ResidualNetwork

import gnlib
from tests.gnbook.pruning.cases import seeded


@pytest.mark.parametrize(
    "make",
    [
        partial(ResidualNetwork, 1, 2, 2),
        partial(VGG, (2, "M", 3, "M"), 8, 2),
        partial(VisionTransformer, 8, 4, 4, 1, 2, 5, 2),
    ],
)
def test_gram_matrix_is_that_of_autograd(make):
    net, x = seeded(make)
    net.eval()
    gradients = [torch.autograd.grad(y, list(net.parameters()), retain_graph=True) for y in net(x).flatten()]
    jacobian = torch.stack([torch.cat([g.flatten() for g in row]) for row in gradients])
    torch.testing.assert_close(gnlib.GaussNewton(net, x).gram(), jacobian @ jacobian.mT / len(x))


def test_weights_are_drawn_as_torch_does():
    """Uniform with variance 1 / (3 fan_in), not Kaiming normal."""
    net = ResidualNetwork(1, 64)
    weight = net.layers[3].branch[0].weight
    assert weight.abs().max().item() == pytest.approx(1 / (9 * 64) ** 0.5, rel=1e-3)
    assert weight.std().item() == pytest.approx(1 / (3 * 9 * 64) ** 0.5, rel=0.02)
    assert VisionTransformer().position.std().item() == pytest.approx(1, rel=0.1)


# Bad input
@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(ResidualNetwork, 0), r"blocks is 0, width is 16 and outputs is 10; numbers from 1 on"),
        (partial(ResidualNetwork, 3, -1), r"width is -1"),
        (partial(VGG, side=20), r"side is 20; a multiple of 8 was expected, to be halved 3 times"),
        (partial(VGG, side=0), r"side is 0; a multiple of 8"),
        (partial(VisionTransformer, 32, 5), r"side is 32 and patch is 5; a patch that divides the side"),
        (partial(VisionTransformer, 32, 0), r"patch is 0; a patch"),
        (partial(VisionTransformer, heads=5), r"width is 48 and heads is 5; a number of heads that divides it"),
        (partial(VisionTransformer, heads=0), r"heads is 0; a number of heads"),
    ],
)
def test_sizes_that_do_not_fit(make, message):
    with pytest.raises(ValueError, match=message):
        make()
