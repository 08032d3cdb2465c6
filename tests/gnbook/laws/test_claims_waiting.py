"""The law of waiting: bounds for every split of the goal, the examples that reach them, the worst residual.

The loss of gradient descent between the two rules of the Lanczos process. Mini-batches on linear models that are drawn:
the mean loss, and the largest rate with its bounds.
"""

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gnlib.diagnosis.batches import BatchNoise, sharpness_at_most
from gnlib.eigen.quadrature import Lanczos
from gnlib.laws import waiting
from tests.gnlib.laws.test_waiting import steps_to, trainings
from tests.oracles import identity
from tests.strategies import gaussian


def no_later_than(training, alpha):
    eigenvalues, shares, rate, goal = training
    least = waiting(eigenvalues, shares, rate, alpha * goal).lower
    return max(1, math.ceil(least / (1 - alpha) * (1 - 1e-12))) if least < math.inf else math.inf


@pytest.mark.claim("Steps to a goal", verdict="holds")
@given(trainings(), st.sampled_from([0.1, 0.3, 0.5, 0.7, 0.9]))
def test_the_steps_are_within_the_bounds_for_every_alpha(training, alpha):
    found, steps, late = waiting(*training), steps_to(*training), no_later_than(training, alpha)
    assert found.lower * (1 - 1e-9) <= steps
    assert steps <= late or steps_to(*training[:3], training[3] * (1 + 1e-9)) <= late
    assert alpha != 0.5 or late == found.upper


@pytest.mark.claim("Both bounds are reached", verdict="holds")
@pytest.mark.parametrize("eigenvalue", [0.9, 0.03, 1.7])
@pytest.mark.parametrize("goal", [0.3, 1e-4])
def test_one_eigenvalue_reaches_the_lower_bound(eigenvalue, goal):
    star = math.log(1 / goal) / (-2 * math.log(abs(1 - eigenvalue)))
    assert waiting([eigenvalue], [1.0], rate=1.0, goal=goal).lower == pytest.approx(star, rel=1e-12)
    assert steps_to([eigenvalue], [1.0], 1.0, goal) == math.ceil(star)


@pytest.mark.claim("Both bounds are reached", verdict="holds")
@pytest.mark.parametrize("alpha", [0.25, 0.5, 0.75])
@pytest.mark.parametrize(("goal", "nearly"), [(1e-3, 0.9), (1e-8, 0.99)])
def test_shares_that_grow_like_an_exponential_reach_the_upper_bound(alpha, goal, nearly):
    """M(s) = alpha e exp(2 T s): all eigenvalues are waited for alike, the share alpha of the goal for ever."""
    kept, steps = alpha * goal, 2_000
    speeds = np.linspace(0, math.log(1 / kept) / (2 * steps), 3001)[1:]
    shares = np.concatenate([[kept * (1 - 1e-9)], np.diff(kept * np.exp(2 * steps * speeds), prepend=kept)])
    training = np.concatenate([[1e-12], -np.expm1(-speeds)]), shares, 1.0, goal
    late = no_later_than(training, alpha)
    assert late == pytest.approx(steps / (1 - alpha), rel=2e-3)
    assert nearly * late < steps_to(*training) <= late
    assert min(no_later_than(training, a) for a in (0.1, 0.2, 0.3, 0.6, 0.8, 0.9)) > nearly * late


@pytest.mark.claim("The worst residual", verdict="holds")
@given(st.lists(st.floats(-5, 0), min_size=2, max_size=6), st.floats(1e-6, 0.9), st.integers(0, 2**31))
def test_the_worst_residual_waits_for_the_smallest_eigenvalue(exponents, goal, seed):
    eigenvalues = 10.0 ** np.array(exponents)
    rate, kappa, last = 1 / eigenvalues.max(), eigenvalues.max() / eigenvalues.min(), eigenvalues == eigenvalues.min()
    worst, found, mixed = (
        waiting(eigenvalues, shares, rate, goal)
        for shares in (1.0 * last, np.random.default_rng(seed).random(len(last)), np.where(last, 1.0, 1e-9))
    )
    assert found.lower <= worst.lower * (1 + 1e-9) and found.effective_condition_number <= kappa * (1 + 1e-12)
    if kappa > 1 + 1e-9:
        ends = [(kappa - 1) / 2 * math.log(1 / goal), kappa / 2 * math.log(1 / goal)]
        assert ends[0] * (1 - 1e-9) <= worst.lower <= ends[1] * (1 + 1e-9)
        assert worst.eigenvalue == eigenvalues.min()
        assert mixed.effective_condition_number == pytest.approx(kappa)


@pytest.mark.claim("A goal that is never reached", verdict="holds")
@given(trainings(), st.floats(0.01, 0.98))
def test_a_goal_is_reached_just_if_less_than_it_stays(training, kept):
    eigenvalues, shares, rate, goal = training
    moving = np.append(np.abs(eigenvalues) + 1e-3 / rate, 0.0)
    moving = moving / max(moving.max() * rate, 1.0)
    parts = np.append(np.array(shares) / np.sum(shares) * (1 - kept), kept)
    found, steps = waiting(moving, parts, rate, goal), steps_to(moving, parts, rate, goal)
    if kept > goal:
        assert (found.lower, found.upper, found.eigenvalue, steps) == (math.inf, math.inf, 0, math.inf)
    elif kept < goal * (1 - 1e-9):
        assert found.lower < math.inf and steps < math.inf and (found.upper < math.inf) == (kept <= goal / 2)


whole = st.integers  # of spectra over six decades, and of singular ones
ANY = dict(seed=whole(0, 10**6), size=whole(3, 40), decades=st.floats(0, 6), zeros=whole(0, 2), products=whole(1, 8))


def spectrum(seed, size, decades, zeros):
    rng = np.random.default_rng(seed)
    values = 10 ** -rng.uniform(0, decades, size)
    values[:zeros] = 0
    return rng, values


def after(matrix, start, products):
    process = Lanczos(lambda v: matrix @ v, start)
    for _ in range(products):
        process.step()
    return process


def left(rule, rate, steps):
    return rule.weights @ (1 - rate * rule.nodes) ** (2 * steps)


@pytest.mark.claim("The loss between two rules", verdict="holds")
@settings(max_examples=100, derandomize=False)
@given(**ANY, factor=st.floats(0.01, 2.5), steps=st.integers(0, 200))
def test_the_loss_lies_between_the_two_rules(factor, products, steps, **drawing):
    """At rates at which it grows, too; spectra over six decades, and singular ones."""
    rng, values = spectrum(**drawing)
    residual, rate = rng.standard_normal(len(values)), factor / values.max()
    low, high = values.min() - values.max() * rng.uniform(1e-4, 1), values.max() * rng.uniform(1.0001, 2)
    exact = residual**2 @ (1 - rate * values) ** (2 * steps)
    process = after(torch.diag(torch.from_numpy(values)), torch.from_numpy(residual), products)
    rules = process.gauss(), process.lobatto(low, high)
    lower, upper = (left(rule, rate, steps) for rule in rules)
    rounding = 1e-9 * (exact + residual @ residual)
    assert lower <= exact + rounding and exact <= upper + rounding
    if steps < products:
        assert lower == pytest.approx(exact, rel=1e-7) == pytest.approx(upper, rel=1e-7)
    if not process.exhausted:
        assert rules[1].nodes[[0, -1]] == pytest.approx([low, high], abs=1e-9 * high)


@pytest.mark.claim("The same rules from the gradient", verdict="holds")
@pytest.mark.parametrize("shape", [(30, 50, 30), (50, 20, 20), (40, 40, 25)])
@pytest.mark.parametrize("products", [4, 12, 60])
def test_the_rules_of_a_residual_from_its_gradient(shape, products):
    """One product sooner, and also where the process ends."""
    n, p, rank = shape
    j, r = gaussian(1, n, rank) @ gaussian(2, rank, p) / n**0.5, gaussian(3, n)
    outputs = after(j @ j.mT / n, r, products)
    parameters = after(j.mT @ j / n, j.mT @ r / n, products - 1)
    assert outputs.exhausted == parameters.exhausted == (products == 60)
    own, high = parameters.jacobi, 1.1 * float(torch.linalg.norm(j, 2)) ** 2 / n
    divided = own._replace(mass=n * own.mass).divided(float(r @ r))
    pairs = [(outputs.gauss(), divided.gauss())]
    if products < 60:
        pairs.append((outputs.lobatto(-1e-12, high), divided.lobatto(-1e-12, high)))
    for rate in (0.5 / high, 1 / high):
        for steps in (1, 30, 1000):
            for one, other in pairs:
                assert left(other, rate, steps) == pytest.approx(left(one, rate, steps), rel=1e-6)


@pytest.mark.claim("The number of eigenvalues below a value", verdict="holds")
@settings(max_examples=100, derandomize=False)
@given(**ANY, at=st.floats(-0.1, 1.2))
def test_the_share_below_a_value_lies_between_its_bounds(products, at, **drawing):
    rng, values = spectrum(**drawing)
    size = len(values)
    assume(np.abs(values - at).min() > 1e-9)
    signs = torch.from_numpy(rng.choice([-1.0, 1.0], size))
    process = after(torch.diag(torch.from_numpy(values)), signs, products)
    low, high = process.jacobi.below(at)
    assert low - 1e-6 * size <= (values < at).sum() <= high + 1e-6 * size
    assert high - low <= (1e-6 if process.exhausted else 1) * size * (1 + 1e-12)


PROBLEMS = dict(  # singular ones, with samples that are repeated and of sizes over four decades
    seed=st.integers(0, 10**6),
    n=st.integers(2, 6),
    k=st.integers(1, 3),
    parameters=st.integers(1, 12),
    decades=st.floats(0, 4),
    repeated=st.booleans(),
)


def gram_of(seed, n, k, parameters, decades, repeated):
    """Return the Gram matrix of a Jacobian over its largest eigenvalue."""
    generator = torch.Generator().manual_seed(seed)
    jacobian = torch.randn(n, k, parameters, generator=generator, dtype=torch.float64)
    jacobian *= 10 ** (-decades * torch.rand(n, 1, 1, generator=generator, dtype=torch.float64))
    jacobian[-1] = jacobian[0] if repeated else jacobian[-1]
    flat = jacobian.flatten(0, 1)
    return flat @ flat.mT / torch.linalg.matrix_norm(flat, 2) ** 2


def radius(noise, rate):
    """Return the spectral radius of the map of second moments on the range."""
    rank, size = int((noise.values > 1e-12).sum()), len(noise.values)
    units = torch.zeros(rank**2, size, size, dtype=torch.float64)
    units[:, -rank:, -rank:] = identity(rank**2).view(-1, rank, rank)
    after = torch.stack([noise.after(unit, rate)[-rank:, -rank:].flatten() for unit in units])
    return torch.linalg.eigvals(after).abs().max().item()


@pytest.mark.claim("The mean loss on mini-batches", verdict="holds")
@given(**PROBLEMS, some=st.floats(0, 1), rates=st.lists(st.floats(0.01, 3), min_size=1, max_size=3))
def test_all_sequences_of_batches_have_the_mean_of_the_map(some, rates, **drawing):
    gram, n, k = gram_of(**drawing), drawing["n"], drawing["k"]
    batch, residual = 1 + round(some * (n - 1)), gaussian(drawing["seed"], n * k)
    kept = [identity(n)[[*own]].sum(0).repeat_interleave(k) for own in combinations(range(n), batch)]
    runs, losses = residual[None], [residual @ residual / (2 * n)]
    for rate in rates:
        runs = torch.cat([runs - rate * n / batch * (runs * own) @ gram for own in kept])
        losses.append(runs.square().sum(1).mean() / (2 * n))
    found = BatchNoise(*torch.linalg.eigh(gram), n, batch).losses(residual, rates)
    torch.testing.assert_close(found, torch.stack(losses), rtol=1e-11, atol=0)


@pytest.mark.claim("The largest rate on mini-batches", verdict="holds")
@given(**PROBLEMS, some=st.floats(0, 1))
def test_at_the_largest_rate_the_map_has_the_radius_one_and_the_rate_lies_between_its_bounds(some, **drawing):
    gram, n, k = gram_of(**drawing), drawing["n"], drawing["k"]
    noises = [BatchNoise(*torch.linalg.eigh(gram), n, batch) for batch in range(1, n + 1)]
    rates, at = [2 / noise.sharpness() for noise in noises], round(some * (n - 1))
    below, one, above = (radius(noises[at], factor * rates[at]) for factor in (0.9, 1, 1.1))
    assert below <= 1 + 1e-9 and one == pytest.approx(1, abs=1e-6) and above > 1 + 1e-3
    largest = n * torch.linalg.eigvalsh(gram.view(n, k, n, k).diagonal(dim1=0, dim2=2).permute(2, 0, 1)).max().item()
    bounds = [2 / sharpness_at_most(1.0, largest, n, batch) for batch in range(1, n + 1)]
    assert all(bound <= rate * (1 + 1e-7) for bound, rate in zip(bounds, rates, strict=True))
    assert all(a <= b * (1 + 1e-7) for a, b in zip(rates, [*rates[1:], 2.0], strict=True))  # grows with the batch
    assert rates[-1] == pytest.approx(2) == pytest.approx(bounds[-1])
