"""Mini-batches on linear models that are drawn: the mean loss, and the largest rate with its bounds."""

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnlib.diagnosis.batch_noise import BatchNoise, sharpness_at_most
from tests.strategies import instances

ANY = dict(  # singular ones, with samples that are repeated and of sizes over four decades
    seed=st.integers(0, 10**6),
    n=st.integers(2, 6),
    k=st.integers(1, 3),
    parameters=st.integers(1, 12),
    decades=st.floats(0, 4),
    repeated=st.booleans(),
    some=st.floats(0, 1),
)


def drawn(seed, n, k, parameters, decades, repeated, some):
    """Return the Gram matrix of a Jacobian over its largest eigenvalue, a residual, n, k and a batch size."""
    generator = torch.Generator().manual_seed(seed)
    jacobian = torch.randn(n, k, parameters, generator=generator, dtype=torch.float64)
    jacobian *= 10 ** (-decades * torch.rand(n, 1, 1, generator=generator, dtype=torch.float64))
    jacobian[-1] = jacobian[0] if repeated else jacobian[-1]
    flat = jacobian.flatten(0, 1)
    residual = torch.randn(n * k, generator=generator, dtype=torch.float64)
    gram = flat @ flat.mT
    return gram / torch.linalg.eigvalsh(gram)[-1], residual, n, k, 1 + round(some * (n - 1))


def noise_of(gram, n, batch):
    return BatchNoise(*torch.linalg.eigh(gram), n, batch)


def largest_of_one(gram, n, k):
    return max(n * torch.linalg.eigvalsh(gram.view(n, k, n, k)[i, :, i])[-1].item() for i in range(n))


def radius(noise, rate, gram):
    """Return the spectral radius of the map of second moments on the range."""
    rank = int((noise.values > 1e-12).sum())
    units = torch.zeros(rank**2, *gram.shape, dtype=torch.float64)
    units[:, -rank:, -rank:] = torch.eye(rank**2, dtype=torch.float64).view(-1, rank, rank)
    after = torch.stack([noise.after(unit, rate)[-rank:, -rank:].flatten() for unit in units])
    return torch.linalg.eigvals(after).abs().max().item()


@pytest.mark.claim("The mean loss on mini-batches", verdict="holds")
@instances
@given(**ANY, rates=st.lists(st.floats(0.01, 3), min_size=1, max_size=3))
def test_all_sequences_of_batches_have_the_mean_of_the_map(rates, **drawing):
    gram, residual, n, k, batch = drawn(**drawing)
    runs = residual[None]
    losses = [residual @ residual / (2 * n)]
    kept = [torch.eye(n, dtype=torch.float64)[[*own]].sum(0) for own in combinations(range(n), batch)]
    for rate in rates:
        runs = torch.cat([runs - rate * n / batch * (runs * own.repeat_interleave(k)) @ gram for own in kept])
        losses.append(runs.square().sum(1).mean() / (2 * n))
    found = noise_of(gram, n, batch).losses(residual, rates)
    torch.testing.assert_close(found, torch.stack(losses), rtol=1e-11, atol=0)


@pytest.mark.claim("The largest rate on mini-batches", verdict="holds")
@instances
@given(**ANY)
def test_the_map_has_the_spectral_radius_one_at_the_largest_rate(**drawing):
    gram, _, n, _, batch = drawn(**drawing)
    noise = noise_of(gram, n, batch)
    rate = 2 / noise.sharpness()
    below, at, above = (radius(noise, factor * rate, gram) for factor in (0.9, 1, 1.1))
    assert below <= 1 + 1e-9 and at == pytest.approx(1, abs=1e-6) and above > 1 + 1e-3


@pytest.mark.claim("The largest rate on mini-batches", verdict="holds")
@instances
@given(**ANY)
def test_the_largest_rate_lies_between_its_bounds_and_grows_with_the_batch(**drawing):
    gram, _, n, k, _ = drawn(**drawing)
    rates = [2 / noise_of(gram, n, batch).sharpness() for batch in range(1, n + 1)]
    one = largest_of_one(gram, n, k)
    bounds = [2 / sharpness_at_most(1.0, one, n, batch) for batch in range(1, n + 1)]
    assert all(bound <= rate * (1 + 1e-7) for bound, rate in zip(bounds, rates, strict=True))
    assert all(a <= b * (1 + 1e-7) for a, b in zip(rates, [*rates[1:], 2.0], strict=True))
    assert rates[-1] == pytest.approx(2) == pytest.approx(bounds[-1])
