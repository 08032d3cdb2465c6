"""Mini-batches on the linear model; `test_claims_waiting` has the map of a step against all batches there are."""

from itertools import combinations

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam

from gnlib import GaussNewton
from gnlib.diagnosis.batches import BatchNoise, sharpness_at_most
from tests.gnlib.networks import perceptron

N, K = 4, 2
RATES = [0.3, 0.5, 0.2, 0.7]


def problem(seed=0, n=N, k=K, **options):
    net = perceptron(5, k, width=4, seed=seed).double()
    return GaussNewton(net, torch.randn(n, 5).double(), torch.randn(n, k).double(), **options)


@pytest.mark.parametrize("batch", range(1, N + 1))
def test_the_mean_is_that_of_the_map(batch):
    g = problem()
    residual = (g._problem.outputs - g._problem._targets).flatten()
    found = g.batch_forecast(batch, RATES)
    expected = BatchNoise(*torch.linalg.eigh(g.gram()), N, batch).losses(residual, RATES)
    torch.testing.assert_close(found.losses, expected, rtol=1e-12, atol=0)
    full = g.forecast(rate=0.4, steps=5).losses
    torch.testing.assert_close(g.batch_forecast(batch, 0.4, steps=5).full_batch, full, rtol=1e-12, atol=0)
    assert (found.losses >= found.full_batch * (1 - 1e-14)).all() and found.rates == tuple(RATES)


@pytest.mark.parametrize("seed", range(6))
def test_the_bound_by_products_is_below_the_rate_and_both_grow_with_the_batch(seed):
    n, k = 2 + seed % 5, 1 + seed % 3
    g, products = problem(seed, n, k), problem(seed, n, k, dtype=torch.float64)
    gram = g.tangent_kernel().view(n, k, n, k)
    largest_of_one = max(torch.linalg.eigvalsh(gram[i, :, i])[-1].item() for i in range(n))
    rates = [g.stable_rate(batch=batch).rate for batch in range(1, n + 1)]
    assert rates == sorted(rates) and rates[-1] == pytest.approx(g.stable_rate().rate, rel=1e-12)
    for batch, rate in enumerate(rates, 1):
        bound = products.stable_rate(batch=batch).rate
        exact = 2 / sharpness_at_most(float(g.eigenvalues()[0]), largest_of_one, n, batch)
        assert bound == pytest.approx(exact / 1.01, rel=2e-3)
        assert bound < exact <= rate * (1 + 1e-10)


def test_the_quadratic_model_of_cross_entropy():
    """Against the spectral radius of the second moment in the parameters."""
    torch.manual_seed(0)
    net, x = nn.Linear(2, 3).double(), torch.randn(4, 2).double()
    stable = GaussNewton(net, x, loss="cross_entropy").stable_rate(batch=2)
    p, wide = net(x).softmax(1).detach(), torch.cat([x, torch.ones(4, 1)], 1).double()
    hessians = [torch.kron(q.diag() - torch.outer(q, q), torch.outer(v, v)) for q, v in zip(p, wide, strict=True)]
    steps = [torch.eye(9).double() - stable.rate * (a + b) / 2 for a, b in combinations(hessians, 2)]
    total = sum(torch.kron(step, step) for step in steps) / len(steps)
    values, vectors = torch.linalg.eigh(sum(hessians))
    moving = torch.kron(*[vectors[:, values > 1e-10]] * 2)
    assert torch.linalg.eigvalsh(moving.mT @ total @ moving).abs().max().item() == pytest.approx(1, abs=1e-10)
    assert stable.batch == 2 and stable.smallest * 4 == pytest.approx(values[values > 1e-10][0].item())


def test_the_rate_of_an_optimiser_is_taken():
    g = problem(optimizer="sgd")
    assert g.batch_forecast(2).rates == (g.stable_rate(batch=2).rate / 2,) * 100
    net = g._problem.module
    optimizer = SGD(net.parameters(), 0.05)
    found = GaussNewton(net, torch.randn(N, 5), torch.randn(N, K), optimizer=optimizer).batch_forecast(2, steps=3)
    assert found.rates == (0.05,) * 3 and f"{found.losses[-1]:.4g} in the mean on batches of 2" in str(found)
    assert found.steps_to(float(found.losses[2])) == 2 and found.steps_to(0.0) is None
    assert g.batch_forecast(1, 1e9, steps=60).losses[-1] == float("inf")


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (lambda g: g.stable_rate(batch=5), "batch is 5; a whole number from 1 to the 4 samples"),
        (lambda g: g.batch_forecast(0, 0.1), "batch is 0"),
        (lambda g: g.batch_forecast(2, -0.1), "rate is -0.1; a positive number"),
        (lambda g: g.batch_forecast(2, [0.1, float("nan")]), "a positive number was expected, or one for each step"),
        (lambda g: g.batch_forecast(2, []), "a positive number"),
        (lambda g: g.batch_forecast(2, [0.1], steps=2), "rate has 1 rates and steps is 2"),
        (lambda g: g.batch_forecast(2, 0.1, steps=0), "steps is 0"),
        (lambda g: g.stable_rate(batch=2).with_momentum(), "without momentum"),
    ],
)
def test_what_wrong_requests_are_told(asked, told):
    with pytest.raises(ValueError, match=told):
        asked(problem())


@pytest.mark.bad_input
def test_what_is_not_known_is_refused():
    net, x, plain = nn.Linear(2, 3).double(), torch.randn(4, 2).double(), "gradient descent of all parameters at one"
    rest, y, f64, rate = SGD([net.bias], 0.1), torch.zeros(4, 3), torch.float64, GaussNewton.stable_rate
    decaying, mean = SGD(net.parameters(), 0.1, weight_decay=0.1), GaussNewton.batch_forecast
    normed = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).double()
    ignoring = {"loss": "cross_entropy", "y": torch.tensor([[0, 1], [2, -100], [0, 0], [1, 1]]), "dtype": f64}
    for optimizer in ("momentum", "adam", rest, decaying, Adam(net.parameters())):
        with pytest.raises(ValueError, match=plain):
            GaussNewton(net, x, y, optimizer=optimizer).stable_rate(batch=2)
    for module, given, options, asked, told in (
        (net, x, {"y": y, "optimizer": "momentum", "dtype": f64}, rate, plain),
        (net, x, {"y": torch.zeros(4).long(), "loss": "cross_entropy"}, mean, "and the loss is cross_entropy"),
        (net, x, {"y": y, "dtype": f64}, mean, "This needs a matrix"),
        (net, x, {"y": y, "memory": 1e-6}, mean, "memory is 1e-06 GiB"),
        (normed, x, {"mode": "train"}, rate, "Samples of a batch depend on each other"),
        (normed, x, {"mode": "train", "dtype": f64}, rate, "Samples of a batch depend on each other"),
        (net, torch.randn(4, 2, 2).double(), ignoring, rate, "different numbers of tokens"),
    ):
        with pytest.raises(ValueError, match=told):
            asked(GaussNewton(module, given, **options), batch=2)
