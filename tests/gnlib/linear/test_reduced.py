"""The reduced matrix of whatever is linear in its inputs, beside other ways to the same spectrum."""

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d

import gnlib
from gnlib.linear import SecondMoment, reduced_gauss_newton

GENERATOR = torch.Generator()


@pytest.fixture(autouse=True)
def _seed():
    GENERATOR.manual_seed(0)


def normal(*shape):
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


def spectrum(matrix, rank):
    return torch.linalg.eigvalsh(matrix).flip(0)[:rank]


def of_module(module, x, **options):
    return torch.linalg.eigvalsh(gnlib.GaussNewton(module, x, **options).gram()).flip(0)


@pytest.mark.parametrize("skip", [0.0, 0.7])
@pytest.mark.parametrize("sizes", [[4, 3], [4, 6, 3], [4, 2, 5, 3]])
def test_deep_linear_networks(sizes, skip):
    """The sum of Kronecker products has the same eigenvalues, on data of a smaller rank too."""
    weights, x = gnlib.linear_weights(sizes, generator=GENERATOR), normal(9, 3) @ normal(3, 4)
    moment = SecondMoment.from_data(x)

    def network(*weights):
        product = torch.eye(4).double()
        for w in weights:
            product = (w + skip * torch.eye(*w.shape).double()) @ product
        return product

    matrix = reduced_gauss_newton(network, weights, moment)
    assert matrix.shape == (9, 9)
    expected = spectrum(gnlib.linear_gauss_newton(weights, moment, skip).dense(), 9)
    assert torch.allclose(spectrum(matrix, 9), expected, rtol=1e-8)
    assert torch.allclose(
        spectrum(reduced_gauss_newton(network, weights, gnlib.second_moment(x)), 9), expected, rtol=1e-7
    )


def test_two_convolutions():
    """On images of the size of the window, each of which is one output."""
    v, w = normal(4, 1, 3, 3), normal(2, 4, 2, 2)

    def effective(v, w):
        return conv2d(v.transpose(0, 1), w.flip(2, 3), padding=1)[0].flatten(1)

    def effective_of_two(v, w):
        return torch.cat([effective(v, w[i : i + 1]) for i in range(2)])

    network = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.Conv2d(4, 2, 2, bias=False), nn.Flatten()).double()
    network[0].weight.data, network[1].weight.data = v, w
    x = normal(20, 1, 4, 4)
    matrix = reduced_gauss_newton(effective_of_two, [v, w], gnlib.second_moment(x.flatten(1)))
    assert torch.allclose(network(x)[:, 0], x.flatten(1) @ effective_of_two(v, w)[0])
    assert torch.allclose(spectrum(matrix, 26), of_module(network, x)[:26], rtol=1e-7)


def test_batch_normalisation():
    """Of centred data it is linear in its inputs, and by autograd through the batch the spectrum is the same."""
    x = normal(30, 5)
    moment = gnlib.second_moment(x - x.mean(0))

    def network(v, w):
        return w @ (v / ((v @ moment) * v).sum(1, keepdim=True).sqrt())

    layers = nn.Linear(5, 7, bias=False), nn.BatchNorm1d(7, eps=1e-300, affine=False), nn.Linear(7, 2, bias=False)
    module = nn.Sequential(*layers).double()
    matrix = reduced_gauss_newton(network, [module[0].weight.detach(), module[2].weight.detach()], moment)
    assert torch.allclose(spectrum(matrix, 10), of_module(module, x, mode="train")[:10], rtol=1e-7)


def test_badly_conditioned_data_keep_their_digits():
    """Weights that are zero leave the data alone: a network of one layer has their condition number."""
    x = normal(40, 6) * 10.0 ** -torch.arange(6).double()
    moment = SecondMoment.from_data(x)
    matrix = reduced_gauss_newton(lambda w: w, [torch.zeros(2, 6)], moment)
    singular = torch.linalg.svdvals(x)
    assert gnlib.condition_number(matrix).value == pytest.approx(float((singular[0] / singular[-1]) ** 2), rel=1e-6)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda w: w[:, :2], r"function returns \(2, 2\); a \(k, 3\) matrix was expected"),
        (lambda w: w.sum(), r"function returns \(\); a \(k, 3\) matrix was expected"),
    ],
)
def test_what_is_no_matrix_of_the_inputs_is_refused(function, message):
    with pytest.raises(ValueError, match=message):
        reduced_gauss_newton(function, [torch.ones(2, 3)], torch.eye(3))
