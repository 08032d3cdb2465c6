"""Largest stable rates; `test_groups` runs optimisers of torch on both sides of them."""

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adagrad, Adam, RMSprop

from gnlib import GaussNewton
from gnlib.diagnosis.descent import Rule
from gnlib.diagnosis.rates import StableRate
from tests.gnlib.derivatives import by_name
from tests.gnlib.diagnosis.kinds import train


def problem(seed=0, n=6, d=4, k=2):
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    net = nn.Linear(d, k).double()
    return net, torch.randn(n, d, generator=generator).double(), torch.randn(n, k, generator=generator).double()


@pytest.mark.parametrize("make", [Adam, RMSprop, torch.optim.AdamW])
def test_the_matrix_is_scaled_by_the_state(make):
    net, x, y = problem()
    optimizer = make(net.parameters(), 1e-3)
    train(net, x, y, "mse", optimizer, 2)
    blocks = by_name(net, x)
    total = 0.0
    for name, p in net.named_parameters():
        state = optimizer.state[p]
        squares = state["square_avg"] if make is RMSprop else state["exp_avg_sq"] / (1 - 0.999**3)
        total = total + blocks[name] / (squares.sqrt() + 1e-8).flatten() @ blocks[name].mT / len(x)
    values = torch.linalg.eigvalsh(total)
    found = GaussNewton(net, x, optimizer=optimizer).stable_rate()
    damping = 19 * 1e-2 if make is torch.optim.AdamW else 0  # the curvature that its weight decay stands for
    assert found.largest == pytest.approx(values[-1].item() + damping, rel=1e-10)
    assert found.rate * found.largest == pytest.approx(2 if make is RMSprop else 38)  # momentum 0.9, averaged
    assert GaussNewton(net, x, y, optimizer=make(net.parameters())).stable_rate().rate > 0  # by its targets


def test_what_an_optimiser_leaves_out_does_not_count():
    net, x, _ = problem()
    block = by_name(net, x)["bias"]
    values = torch.linalg.eigvalsh(block @ block.mT / len(x))
    assert GaussNewton(net, x, optimizer=SGD([net.bias], 0.1)).stable_rate().largest == pytest.approx(values[-1].item())


def test_cross_entropy_has_a_larger_rate_than_the_squared_error():
    net, x, _ = problem()
    rates = [GaussNewton(net, x, loss=loss).stable_rate().rate for loss in ("mse", "cross_entropy")]
    assert rates[1] > 2 * rates[0]  # its second derivative has a norm of one half at most


def test_what_is_left_of_the_slowest_direction():
    assert StableRate("", 4.0, lambda: 1.0, Rule(1.0)).left(100) == pytest.approx(0.75**100)
    assert StableRate("", 4.0, lambda: 1.0, Rule(1.0)).left(3, rate=0.1) == pytest.approx(0.9**3)
    momentum = StableRate("", 1.0, lambda: 1e-3, Rule(1.0, 0.9))
    assert momentum.rate == pytest.approx(3.8)
    assert momentum.left(100) < StableRate("", 1.0, lambda: 1e-3, Rule(1.0)).left(100)
    companion = torch.tensor([[1.9 - 1.9e-3, -0.9], [1.0, 0.0]], dtype=torch.float64)
    expected = torch.linalg.matrix_power(companion, 100) @ torch.ones(2, dtype=torch.float64)
    assert momentum.left(100) == pytest.approx(expected[0].item())
    assert momentum.left(0) == 1


def test_a_direction_that_oscillates_leaves_a_share_without_a_sign():
    rate = StableRate(optimizer="", largest=1.0, find_smallest=lambda: 0.1, rule=Rule(1.0, 0.9))
    companion = torch.tensor([[1.9 - 0.19, -0.9], [1.0, 0.0]], dtype=torch.float64)
    course = [(torch.linalg.matrix_power(companion, t) @ torch.ones(2).double())[0].item() for t in range(20)]
    assert min(course) < -0.1
    assert [rate.left(t) for t in range(20)] == pytest.approx([abs(left) for left in course])


@pytest.mark.bad_input
def test_what_wrong_optimisers_are_told():
    net, x, _ = problem()
    with pytest.raises(ValueError, match="of type Adam, has taken no step and has no state"):
        GaussNewton(net, x, optimizer=Adam(net.parameters())).stable_rate()
    with pytest.raises(TypeError, match="optimizer is of type Adagrad"):
        GaussNewton(net, x, optimizer=Adagrad(net.parameters())).stable_rate()
    with pytest.raises(ValueError, match="parameters that module has not"):
        GaussNewton(net, x, optimizer=SGD(nn.Linear(2, 2).parameters(), 0.1)).stable_rate()


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
@pytest.mark.parametrize("optimizer", [None, "momentum"])
def test_a_matrix_that_does_not_fit_is_not_made(loss, optimizer):
    """One eigenvalue is enough, and products with vectors have it."""
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 40)), torch.randn(30, 5)
    y = torch.randint(40, (30,)) if loss == "cross_entropy" else None
    little, enough = (GaussNewton(net, x, y, loss, memory=memory, optimizer=optimizer) for memory in (0.01, 4.0))
    with pytest.raises(ValueError, match=r"memory is 0\.01 GiB but 0\.0\d+ are needed"):
        little.condition_number()
    assert little.stable_rate().rate == pytest.approx(enough.stable_rate().rate, rel=1e-7)
    with pytest.raises(ValueError, match=r"memory is 0\.01 GiB"):
        little.stable_rate().left()


def test_what_has_no_matrix_in_double_precision_has_a_rate():
    """Of outputs times 1e-160 the Gram matrix is zero, the singular values are not."""
    net, x = torch.nn.Linear(3, 1, bias=False).double(), torch.diag(torch.tensor([3.0, 2.0, 1.0])).double()
    rate = GaussNewton(net, x, output=lambda y: y * 1e-152).stable_rate()
    assert rate.largest == pytest.approx(3e-304)
