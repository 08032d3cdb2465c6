"""Attention at its start: softmax of small scores, the kernel beside that of a mean, the part of queries and keys."""

import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from gnbook.attention.bounds import distance_bound
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles import norm

SCORES = st.lists(st.floats(-4, 4), min_size=1, max_size=12)
SEEDS = st.integers(0, 2**31)


class Head(NamedTuple):
    """The matrices of a head: queries, keys and values are (d, part), outputs (part, k)."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    out: torch.Tensor


def drawn_head(d, part, outputs, *, scores=1.0, generator):
    """Normal matrices of variance one over the rows; queries and keys are `scores` times as large."""
    shapes = (d, part), (d, part), (d, part), (part, outputs)
    query, key, *others = (
        torch.randn(shape, dtype=torch.float64, generator=generator) / shape[0] ** 0.5 for shape in shapes
    )
    return Head(scores * query, scores * key, *others)


def scores_of(tokens, head, *, last=False):
    """The scores of all rows, or of the last one."""
    queries = (tokens[:, -1:] if last else tokens) @ head.query
    return queries @ (tokens @ head.key).mT / head.query.shape[1] ** 0.5


def output(tokens, head, *, last=False):
    """The output of the mean over all rows, or of the last row."""
    rows = scores_of(tokens, head, last=last).softmax(-1).mean(1, keepdim=True)
    return (rows @ tokens @ head.value @ head.out)[:, 0]


def jacobians(tokens, head, *, last=False):
    """The blocks of J by all four matrices."""
    return torch.func.jacrev(lambda some: output(tokens, some, last=last))(head)


def kernel(tokens, head, *, last=False):
    """J J^T / n by all four matrices."""
    rows = torch.cat([block.flatten(2).flatten(0, 1) for block in jacobians(tokens, head, last=last)], 1)
    return rows @ rows.mT / len(tokens)


def mean_kernel(tokens, head):
    """The kernel of the mean token by values and outputs, which is the one of zero scores."""
    mean, (_, _, value, out) = tokens.mean(1), head
    mixed = mean @ value
    eye = torch.eye(out.shape[1], dtype=out.dtype)
    return (torch.kron(mean @ mean.mT, out.mT @ out) + torch.kron(mixed @ mixed.mT, eye)) / len(tokens)


def kernel_bound(tokens, head, *, last=False):
    """The most by which the two kernels differ, in the spectral norm: the claim on attention near the mean."""
    read, part = tokens[:, -1:] if last else tokens, head.query.shape[1]
    scores = scores_of(tokens, head, last=last)
    spread = (scores.amax(-1) - scores.amin(-1)).max().item()
    mean = tokens.mean(1, keepdim=True)
    centred = tokens - mean
    radius = centred.norm(dim=-1).max().item()
    covariance = (torch.linalg.matrix_norm(centred, 2).max() ** 2 / tokens.shape[1]).item()
    longest, queries, pull = (
        vectors.norm(dim=-1).max().item()
        for vectors in (read, read @ head.query, read @ head.query @ head.key.mT / part**0.5)
    )
    seen = min(radius**2, math.exp(spread) * covariance)
    moved = min(radius * distance_bound(spread), pull * (math.expm1(spread) / spread if spread else 1.0) * covariance)
    size = torch.linalg.matrix_norm(mean[:, 0], 2).item() / len(tokens) ** 0.5
    key, value, out, both = (
        torch.linalg.matrix_norm(w, 2).item() for w in (head.key, head.value, head.out, head.value @ head.out)
    )
    of_values = (value**2 + out**2) * moved * (2 * size + moved)
    return of_values + (key**2 * longest**2 + queries**2) * both**2 * seen**2 / part


def softmax(scores):
    weights = np.exp(scores - np.max(scores))
    return weights / weights.sum()


@pytest.mark.claim("Softmax of small scores", verdict="holds")
@given(SCORES, st.floats(0, 1))
def test_weights_are_near_uniform_and_nearer_to_their_first_order(scores, scale):
    s = scale * np.array(scores)
    p, t, r = softmax(s), len(s), np.ptp(s)
    first = (1 + s - s.mean()) / t
    assert (p <= math.exp(r) / t * (1 + 1e-12)).all() and (p >= math.exp(-r) / t * (1 - 1e-12)).all()
    assert np.abs(p - 1 / t).sum() <= distance_bound(r) + 1e-14 and distance_bound(r) <= r / 2
    assert np.abs(p - first).max() <= (math.expm1(r) - r) / t + 1e-14
    assert np.abs(p - first).sum() <= r**2 / 4 + 1e-14


def case(seed, scale, last):
    """Tokens that are far from the origin or not, of one, two or three samples."""
    rng = np.random.default_rng(seed)
    n, t, d, part, k = (int(rng.integers(1, most)) for most in (4, 6, 6, 4, 4))
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randn(n, t, d, dtype=torch.float64, generator=generator) * 10 ** rng.uniform(-1, 0.5)
    tokens = tokens + rng.choice([0.0, 3.0]) * torch.randn(n, 1, d, dtype=torch.float64, generator=generator)
    head = drawn_head(d, part, k, scores=scale, generator=generator)
    return tokens, head, kernel(tokens, head, last=last)


@pytest.mark.claim("Attention near the mean", verdict="holds")
@given(SEEDS, st.floats(-3, 0.5), st.booleans())
def test_the_kernel_is_near_the_one_of_the_mean(seed, exponent, last):
    tokens, head, found = case(seed, 10**exponent, last)
    mean, bound = mean_kernel(tokens, head), kernel_bound(tokens, head, last=last)
    assert norm(found - mean) <= bound * (1 + 1e-9) + 1e-12 * norm(found)
    moved = (torch.linalg.eigvalsh(found) - torch.linalg.eigvalsh(mean)).abs().max().item()
    assert moved <= bound * (1 + 1e-9) + 1e-12 * norm(found)
    scores = scores_of(tokens, head, last=last)
    radius = (tokens - tokens.mean(1, keepdim=True)).norm(dim=-1).max().item()
    read = (tokens[:, -1:] if last else tokens) @ head.query @ head.key.mT / head.query.shape[1] ** 0.5
    most = 2 * radius * read.norm(dim=-1).max().item()
    assert (scores.amax(-1) - scores.amin(-1)).max().item() <= most * (1 + 1e-9)


@pytest.mark.claim("The part of queries and keys", verdict="holds")
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("gains", [(1.0, 1.0, 1.0, 1.0), (0.5, 2.0, 1.5, 0.7)])
def test_the_mean_traces(last, gains):
    n, t, d, k, small, draws = 2, 3, 5, 2, 1e-3, 1500
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(n, t, d, dtype=torch.float64, generator=generator) + 0.5
    found = np.zeros(4)
    for _ in range(draws):
        head = drawn_head(d, d, k, generator=generator)
        scaled = Head(*(gain * w for gain, w in zip(gains, head, strict=True)))
        scaled = scaled._replace(query=small * scaled.query, key=small * scaled.key)
        blocks = jacobians(tokens, scaled, last=last)
        found += np.array([block.square().sum().item() for block in blocks]) / draws
    q, key, v, o = (gain**2 for gain in gains)
    mean = tokens.mean(1)
    read = tokens[:, -1] if last else mean
    centred = tokens - mean[:, None]
    squares = (centred.mT @ centred / t).square().sum((1, 2))
    of_scores = (read.square().sum(-1) * squares).sum().item() * small**2 * v * o * k / d**2
    sizes = mean.square().sum().item() * k
    assert found == pytest.approx([key * of_scores, q * of_scores, o * sizes, v * sizes], rel=0.15)
    ratio = found[:2].sum() / found[2:].sum()
    law = (
        small**2 * (q + key) * v * o / (v + o) * (read.square().sum(-1) * squares).sum() / (d**2 * mean.square().sum())
    )
    assert ratio == pytest.approx(law.item(), rel=0.12)


@pytest.mark.claim("Attention is nearly uniform at the start", verdict="fails")
@pytest.mark.parametrize("d", [16, 64, 256])
def test_one_matrix_for_queries_and_keys_makes_each_token_see_itself(d):
    tokens = d**0.5 * torch.eye(d, dtype=torch.float64)[None, :2]
    eye = torch.eye(d, dtype=torch.float64)
    weights = scores_of(tokens, Head(eye, eye, eye, eye)).softmax(-1)[0]
    assert weights.diagonal().tolist() == pytest.approx([1 / (1 + math.exp(-(d**0.5)))] * 2)
    drawn = [
        scores_of(tokens, head._replace(key=head.query))[0]
        for head in (drawn_head(d, d, 1, generator=torch.Generator().manual_seed(seed)) for seed in range(60))
    ]
    assert torch.stack(drawn).mean(0).diagonal().tolist() == pytest.approx([d**0.5] * 2, rel=0.1)


@pytest.mark.claim("Softmax of small scores", verdict="holds")
@pytest.mark.parametrize("r", [1e-3, 0.5, 2.0, 6.0])
def test_the_bounds_on_weights_are_attained(r):
    t = 10**6
    some = round(t / (1 + math.exp(r / 2)))
    distance = np.abs(softmax(np.repeat([r, 0.0], [some, t - some])) - 1 / t).sum()
    assert distance == pytest.approx(2 * math.tanh(r / 4), rel=1e-5)
    one = np.repeat([r, 0.0], [1, t - 1])
    gap = np.abs(softmax(one) - (1 + one - one.mean()) / t)
    assert gap[0] == pytest.approx((math.exp(r) - 1 - r) / t, rel=2e-3)
    halves = np.repeat([r, 0.0], 2)
    assert np.abs(softmax(halves) - 0.25).sum() <= r / 2
    if r == 1e-3:
        assert np.abs(softmax(halves) - 0.25).sum() == pytest.approx(r / 2, rel=1e-6)


@pytest.mark.claim("Attention near the mean", verdict="holds")
@pytest.mark.parametrize("last", [True, False])
def test_the_bound_of_queries_and_keys_is_attained(last):
    """Two tokens, +1 and -1: covariance and radius are one, and every product of norms is a product of numbers."""
    tokens = torch.tensor([[[1.0], [-1.0]]], dtype=torch.float64)
    for scale in (1e-2, 1e-4):
        one = torch.ones(1, 1, dtype=torch.float64)
        head = Head(scale * one, scale * one, one, one)
        away = norm(kernel(tokens, head, last=last) - mean_kernel(tokens, head))
        if last:  # the mean of both tokens reads a query of zero
            assert away / kernel_bound(tokens, head, last=last) == pytest.approx(1, rel=20 * scale**2)
        else:
            assert away <= kernel_bound(tokens, head)
