"""Mini-batches on the linear model, against all batches there are, runs that are drawn, and growth on both sides."""

from itertools import combinations
from math import comb

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam

from gnlib import GaussNewton
from gnlib.diagnosis.batch_noise import BatchNoise, Stability, sharpness_at_most

N, K = 4, 2
RATES = [0.3, 0.5, 0.2, 0.7]


def problem(seed=0, n=N, d=5, k=K, **options):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(d, 4), nn.Tanh(), nn.Linear(4, k)).double()
    x, y = torch.randn(n, d).double(), torch.randn(n, k).double()
    return GaussNewton(net, x, y, **options), (net(x) - y).detach()


def stepped(gram, residuals, kept, rate, batch):
    """Return residuals (runs, n, k) after a step on the samples that are kept (runs, n)."""
    pushed = (kept[:, :, None] * residuals).flatten(1) @ gram
    return residuals - rate * kept.shape[1] / batch * pushed.view_as(residuals)


def batches(n, batch):
    return torch.stack([torch.eye(n)[list(own)].sum(0) for own in combinations(range(n), batch)]).double()


@pytest.mark.parametrize("batch", range(1, N + 1))
def test_the_mean_over_all_sequences_of_batches(batch):
    g, residual = problem()
    every, runs, losses = batches(N, batch), residual[None], [residual.square().sum()]
    for rate in RATES:
        runs = stepped(g.gram(), runs.repeat_interleave(len(every), 0), every.repeat(len(runs), 1), rate, batch)
        losses.append(runs.square().sum((1, 2)).mean())
    found = g.batch_forecast(batch, RATES)
    torch.testing.assert_close(found.losses, torch.stack(losses) / (2 * N), rtol=1e-12, atol=0)
    full = g.forecast(rate=0.4, steps=5).losses
    torch.testing.assert_close(g.batch_forecast(batch, 0.4, steps=5).full_batch, full, rtol=1e-12, atol=0)
    assert torch.equal(found.losses, found.full_batch) == (batch == N)
    assert (found.losses >= found.full_batch * (1 - 1e-14)).all() and found.rates == tuple(RATES)


def test_the_mean_of_runs_that_are_drawn():
    g, residual = problem(n=3)
    generator, count, every = torch.Generator().manual_seed(0), 20_000, batches(3, 2)
    runs, rate = residual.expand(count, 3, K), 0.8 * g.stable_rate(batch=2).rate
    for _ in range(12):
        kept = every[torch.randint(len(every), (count,), generator=generator)]
        runs = stepped(g.gram(), runs, kept, rate, 2)
    losses = runs.square().sum((1, 2)) / 6
    expected = g.batch_forecast(2, rate, steps=12).losses[-1]
    assert abs(losses.mean() - expected) < 4 * losses.std() / count**0.5


@pytest.mark.parametrize("batch", range(1, N + 1))
def test_the_mean_grows_just_above_the_stable_rate(batch):
    """For a target that no network reaches too: the part of it that is out of reach stays."""
    for options in ({}, {"d": 1, "n": 6}):  # full rank, and rank 11 of 12
        g, _ = problem(**options)
        stable = g.stable_rate(batch=batch)
        below, above = (g.batch_forecast(batch, factor * stable.rate, steps=400).losses for factor in (0.95, 1.05))
        assert below[-1] < 1.001 * below[200] and above[-1] > 1e3 * above[200]
        assert stable.batch == batch and stable.smallest == g.condition_number().smallest


def test_the_stable_rate_is_where_the_map_has_the_spectral_radius_one():
    g, _ = problem()
    noise = BatchNoise(*torch.linalg.eigh(g.gram()), N, 2)
    units = torch.eye((N * K) ** 2).double()
    after = [noise.after(unit.view(N * K, -1), g.stable_rate(batch=2).rate).flatten() for unit in units]
    assert torch.linalg.eigvals(torch.stack(after)).abs().max().item() == pytest.approx(1, abs=1e-10)
    stability = Stability(noise).dense()
    torch.testing.assert_close(stability, stability.mT)
    assert torch.linalg.eigvalsh(stability)[-1].item() * g.stable_rate(batch=2).rate == pytest.approx(1, abs=1e-10)


@pytest.mark.parametrize("seed", range(6))
def test_the_bound_is_below_the_rate_and_both_fall_with_the_batch(seed):
    n, k = 2 + seed % 5, 1 + seed % 3
    g, _ = problem(seed, n=n, k=k)
    products, _ = problem(seed, n=n, k=k, dtype=torch.float64)
    gram = g.tangent_kernel().view(n, k, n, k)
    largest_of_one = max(torch.linalg.eigvalsh(gram[i, :, i])[-1].item() for i in range(n))
    rates = [g.stable_rate(batch=batch).rate for batch in range(1, n + 1)]
    bounds = [products.stable_rate(batch=batch).rate for batch in range(1, n + 1)]
    assert rates == sorted(rates) and rates[-1] == pytest.approx(g.stable_rate().rate, rel=1e-12)
    for batch, rate, bound in zip(range(1, n + 1), rates, bounds, strict=True):
        exact = 2 / sharpness_at_most(float(g.eigenvalues()[0]), largest_of_one, n, batch)
        assert bound == pytest.approx(exact / 1.01, rel=2e-3)
        assert bound < exact <= rate * (1 + 1e-10)


def test_samples_that_share_nothing_attain_the_bound():
    g = GaussNewton(nn.Linear(3, 1, bias=False).double(), torch.diag(torch.tensor([3.0, 2.0, 1.0]).double()))
    assert g.stable_rate(batch=1).rate == pytest.approx(2 / 9)  # of full batches 2 / 3
    assert g.stable_rate(batch=2).rate == pytest.approx(2 / sharpness_at_most(3.0, 9.0, 3, 2))


def test_the_quadratic_model_of_cross_entropy():
    """Against the spectral radius of the second moment in the parameters."""
    torch.manual_seed(0)
    net, x = nn.Linear(2, 3).double(), torch.randn(4, 2).double()
    rate, n, batch = GaussNewton(net, x, loss="cross_entropy").stable_rate(batch=2).rate, 4, 2
    p = net(x).softmax(1).detach()
    wide = torch.cat([x, torch.ones(n, 1)], 1).double()
    hessians = [torch.kron(p[i].diag() - torch.outer(p[i], p[i]), torch.outer(wide[i], wide[i])) for i in range(n)]
    total = 0.0
    for own in combinations(range(n), batch):
        step = torch.eye(9).double() - rate * sum(hessians[i] for i in own) / batch
        total = total + torch.kron(step, step) / comb(n, batch)
    values, vectors = torch.linalg.eigh(sum(hessians))
    moving = vectors[:, values > 1e-10]
    moving = torch.kron(moving, moving)
    assert torch.linalg.eigvalsh(moving.mT @ total @ moving).abs().max().item() == pytest.approx(1, abs=1e-10)


def test_the_rate_of_an_optimiser_is_taken():
    g, _ = problem()
    net = g._problem.module
    torch.manual_seed(0)
    own = problem(optimizer="sgd")[0]
    assert own.batch_forecast(2).rates == (own.stable_rate(batch=2).rate / 2,) * 100
    x, y = torch.randn(N, 5).double(), torch.randn(N, K).double()
    found = GaussNewton(net, x, y, optimizer=SGD(net.parameters(), 0.05)).batch_forecast(2, steps=3)
    assert found.rates == (0.05,) * 3
    assert found.steps_to(float(found.losses[2])) == 2 and found.steps_to(0.0) is None
    assert str(found).startswith(f"loss {found.losses[0]:.4g}, after 3 steps {found.losses[-1]:.4g} in the mean")


def test_a_loss_that_leaves_the_range_is_infinite():
    g, _ = problem()
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
        asked(problem()[0])


@pytest.mark.bad_input
def test_what_is_not_known_is_refused():
    for optimizer in ("momentum", "adam"):
        with pytest.raises(ValueError, match="gradient descent of all parameters at one rate"):
            problem(optimizer=optimizer)[0].stable_rate(batch=2)
    with pytest.raises(ValueError, match="gradient descent of all parameters at one rate"):
        problem(optimizer="momentum", dtype=torch.float64)[0].stable_rate(batch=2)
    net, x = nn.Linear(2, 3).double(), torch.randn(4, 2).double()
    for some in (SGD([net.bias], 0.1), SGD(net.parameters(), 0.1, weight_decay=0.1), Adam(net.parameters())):
        with pytest.raises(ValueError, match="gradient descent of all parameters at one rate"):
            GaussNewton(net, x, x.new_zeros(4, 3), optimizer=some).stable_rate(batch=2)
    with pytest.raises(ValueError, match="of the squared error, and the loss is cross_entropy"):
        GaussNewton(net, x, torch.zeros(4).long(), "cross_entropy").batch_forecast(2)
    with pytest.raises(ValueError, match="This needs a matrix"):
        GaussNewton(net, x, x.new_zeros(4, 3), dtype=torch.float64).batch_forecast(2)
    with pytest.raises(ValueError, match="memory is 1e-06 GiB"):
        GaussNewton(net, x, x.new_zeros(4, 3), memory=1e-6).batch_forecast(2)
    normed = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).double()
    for dtype in (None, torch.float64):
        with pytest.raises(ValueError, match="Samples of a batch depend on each other"):
            GaussNewton(normed, x, mode="train", dtype=dtype).stable_rate(batch=2)
    tokens, targets = nn.Linear(2, 3).double(), torch.tensor([[0, 1], [2, -100], [0, 0], [1, 1]])
    with pytest.raises(ValueError, match="different numbers of tokens"):
        options = {"loss": "cross_entropy", "dtype": torch.float64}
        GaussNewton(tokens, torch.randn(4, 2, 2).double(), targets, **options).stable_rate(batch=2)
