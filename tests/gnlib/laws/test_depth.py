"""The law of depth against networks that are drawn, against densities, and against its closed forms."""

import math

import numpy as np
import pytest
import torch

from gnlib import condition_number, linear_gauss_newton
from gnlib.laws import deep_linear, depth, kappa
from gnlib.linear import linear_weights
from tests.gnlib.laws.networks import spectrum

pytestmark = pytest.mark.slow  # `make check` leaves them out, `make test` does not

LAPLACE = 0.66274341934918158097  # x exp(sqrt(1 + x^2)) = 1 + sqrt(1 + x^2)


def mass(law, power=0, points=400):
    """Return the integral of x^power over the density, on Chebyshev's points."""
    angles = (np.arange(points) + 0.5) * np.pi / points
    half = (law.upper - law.lower) / 2
    x = law.lower + half * (1 - np.cos(angles))
    return (law.density(x) * x**power * half * np.sin(angles)).sum() * np.pi / points


def distance(law, eigenvalues):
    """Return the largest difference between shares of eigenvalues below a point, drawn and by the law."""
    points = np.linspace(law.lower, law.upper, 2001)
    steps = law.density((points[1:] + points[:-1]) / 2) * np.diff(points)
    shares = np.cumsum(steps)
    return np.abs(shares - np.searchsorted(np.sort(eigenvalues), points[1:]) / len(eigenvalues)).max()


CASES = {
    "plain": dict(layers=5, widths=300, data=150),
    "square": dict(layers=4, widths=150, data=150),
    "more inputs than rank": dict(layers=4, widths=300, data=150, inputs=250),
    "own widths and scales": dict(layers=4, widths=[200, 400, 250], data=150, scale=[1.5, 0.7, 1.0, 2.0]),
    "skips": dict(layers=4, widths=200, data=200, skip=1.0),
    "skips and small branches": dict(layers=12, widths=150, data=150, skip=1.0, scale=12**-0.5),
    "rectangular skips": dict(layers=4, widths=400, data=150, inputs=200, skip=0.7),
    "skips of hidden layers": dict(layers=5, widths=400, data=150, skip=[0, 2, 2, 2, 0]),
    "a late bottleneck": dict(layers=4, widths=[220, 100, 200], data=150),
    "a frozen first layer": dict(layers=4, widths=300, data=150, rates=[0, 1, 1, 1]),
    "frozen ends and skips": dict(layers=5, widths=300, data=150, rates=[0, 2, 0, 0.5, 0], skip=[0, 1, 1, 1, 0]),
}


def of_white_data(widths, seed=0, skip=0.0, scale=1.0):
    """The ends of the spectrum of a network that is drawn, and its condition number."""
    weights = linear_weights(widths, generator=torch.Generator().manual_seed(seed))
    drawn = condition_number(linear_gauss_newton([scale * w for w in weights], torch.eye(widths[0]), skip))
    return [drawn.smallest, drawn.largest, drawn.value]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_networks_that_are_drawn_have_the_spectrum(case):
    law, keywords = deep_linear(**case), {key: case[key] for key in ("scale", "skip", "rates") if key in case}
    widths = case["widths"] if isinstance(case["widths"], list) else [case["widths"]] * (case["layers"] - 1)
    draws = [
        spectrum([case.get("inputs", case["data"]), *widths], rank=case["data"], seed=seed, **keywords)
        for seed in range(3)
    ]
    assert distance(law, np.concatenate(draws)) < 0.025
    assert np.mean([draw[-1] for draw in draws]) == pytest.approx(law.upper, rel=0.09)
    assert np.mean([draw[0] for draw in draws]) == pytest.approx(law.lower, rel=0.06)
    assert mass(law) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("widths", [[180, 160, 170], [200, 60, 150], [60, 200, 90], [150, 160, 170]], ids=str)
def test_networks_of_orthogonal_layers_have_the_spectrum(widths):
    """A layer that narrows is a projection; eigenvalues that meet none lie at a single point."""
    gain, inputs, rank = 1.21, 200, 150
    law = deep_linear(4, widths, rank, inputs=inputs, orthogonal=True, scale=gain**0.5)
    rows = [gain * min(1, n / m) for n, m in zip(widths, [*widths[1:], 1], strict=True)]  # squared norms, layers 2 to 4
    weights = [*np.cumprod(rows[::-1])[::-1], 1]
    draws = [
        spectrum([inputs, *widths], rank=rank, orthogonal=True, scale=gain**0.5, weights=weights, seed=seed)
        for seed in range(2)
    ]
    assert np.mean([draw[-1] for draw in draws]) == pytest.approx(law.upper, rel=0.01)
    assert np.mean([draw[0] for draw in draws]) == pytest.approx(law.lower, rel=0.05)
    found, counts = np.unique(np.concatenate(draws).round(9), return_counts=True)
    assert mass(law) == pytest.approx(counts[counts < 4].sum() / (2 * rank), abs=0.01)
    assert mass(law, 1) == pytest.approx(found[counts < 4].sum() / (2 * rank), rel=0.03)


@pytest.mark.parametrize(
    ("layers", "width", "skip", "scale"),
    [(2, 400, 0.0, 1.0), (4, 400, 0.0, 1.0), (6, 200, 0.0, 1.0), (4, 200, 1.0, 1.0), (12, 80, 1.0, 0.2)],
)
def test_several_outputs_widen_the_spectrum(layers, width, skip, scale):
    """By more than what the law is off without them."""
    rank, outputs = 80, 8
    widths = [rank, *[width] * (layers - 1), outputs]
    found = [of_white_data(widths, seed, skip, scale)[:2] for seed in range(4)]
    one, law = (deep_linear(layers, width, rank, outputs=k, skip=skip, scale=scale) for k in (1, outputs))
    low, high = np.mean(found, axis=0)
    assert (low, high) == (pytest.approx(law.lower, rel=0.12), pytest.approx(law.upper, rel=0.12))
    assert abs(math.log(high / low / law.kappa)) < abs(math.log(high / low / one.kappa)) / 1.5
    assert law.lower < one.lower < one.upper < law.upper
    assert mass(law) == pytest.approx(1, abs=5e-3)


SPECTRA = {"1 / i": 1 / np.arange(1, 151.0), "even": np.linspace(0.1, 1, 150), "two": np.repeat([1.0, 5.0], 75)}
SPECTRA |= {f"{one} beside ones": np.array([one] + [1.0] * 149) for one in (100.0, 0.01)}


@pytest.mark.parametrize("data", SPECTRA.values(), ids=SPECTRA)
@pytest.mark.parametrize("widths", [[150, 150, 150], [600, 500, 700]], ids=["narrow", "wide"])
def test_networks_on_data_have_the_ends(data, widths):
    """The largest eigenvalue of the data lies alone in most of these, and comes to lie at one point, with a spread."""
    law = deep_linear(4, widths, data)
    draws = [spectrum([150, *widths], data=data, seed=seed) for seed in range(6)]
    assert np.mean([draw[-1] for draw in draws]) == pytest.approx(law.upper, rel=0.13)
    assert np.mean([draw[0] for draw in draws]) == pytest.approx(law.lower, rel=0.06)
    more = [0.0, *7 * data[::-1], 1e-17]  # zeros do not count, nor does the order
    assert deep_linear(4, widths, torch.tensor(more), inputs=150).upper == pytest.approx(7 * law.upper, rel=1e-9)


@pytest.mark.parametrize("ratio", [0.01, 0.25, 0.9, 1.0])
def test_two_layers_are_marchenko_and_pastur_shifted_by_one(ratio):
    width = 1000
    law = deep_linear(2, width, round(ratio * width), inputs=width)
    low, high = 1 + (1 - ratio**0.5) ** 2, 1 + (1 + ratio**0.5) ** 2
    assert (law.lower, law.upper) == (pytest.approx(low, rel=1e-12), pytest.approx(high, rel=1e-12))
    x = np.linspace(low, high, 9)[1:-1]
    known = np.sqrt((x - low) * (high - x)) / (2 * np.pi * ratio * (x - 1))
    np.testing.assert_allclose(law.density(x), known, rtol=1e-8)


def test_a_first_layer_narrower_than_the_rank_leaves_eigenvalues_at_its_own_term():
    law = deep_linear(4, [60, 150, 200], 120, scale=[1, 1, 2, 3])
    drawn = spectrum([120, 60, 150, 200], scale=[1, 1, 2, 3])
    assert law.lower == 36 and law.kappa == law.upper / 36
    assert (np.abs(drawn / drawn[0] - 1) < 1e-9).sum() == 60
    assert mass(law) == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize(
    ("law", "lower", "upper"),
    [
        (deep_linear(1, 10, 7), 1, 1),
        (deep_linear(1, [], [3.0, 1.0, 2.0], scale=5.0), 1, 3),
        (deep_linear(50, 100, 80, orthogonal=True), 50, 50),
        (deep_linear(3, 60, [3.0] * 40), 3 * deep_linear(3, 60, 40).lower, 3 * deep_linear(3, 60, 40).upper),
    ],
    ids=["one layer", "one layer on data", "orthogonal layers of one width", "data of one eigenvalue"],
)
def test_ends_that_are_known(law, lower, upper):
    assert (law.lower, law.upper) == (pytest.approx(lower, rel=1e-9), pytest.approx(upper, rel=1e-9))


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_square_frozen_layer_takes_the_spectrum_to_zero(outputs):
    law = deep_linear(4, 60, 60, rates=[0, 1, 1, 1], outputs=outputs)
    assert law.lower == 0 and law.kappa == math.inf and law.upper > 10


def test_thin_networks_have_a_semicircle_and_kappa_of_deep_ones_is_quadratic_in_their_depth():
    for t in (1e-6, 1e-5, 1e-4):
        assert (kappa(t) - 1) / (4 * math.sqrt(t / 3)) == pytest.approx(1, abs=4 * t**0.5)
    for t in (1e2, 1e4, 0.999e8, 1.001e8, 1e100):
        assert kappa(t) * (LAPLACE / t) ** 2 == pytest.approx(1 + 2 / t, abs=1.1 / t**2 + 1e-12)


@pytest.mark.parametrize("sigma", [0.25, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("ratio", [1.0, 0.25])
def test_branches_bound_kappa_at_any_depth(sigma, ratio):
    """By the curve of plain networks, at t = 2 sigma^2 d / m."""
    limit = kappa(2 * sigma**2 * ratio)
    few, many = (
        deep_linear(layers, 100, round(100 * ratio), inputs=100, scale=sigma / layers**0.5, skip=1).kappa
        for layers in (500, 1000)
    )
    assert 2 * many - few == pytest.approx(limit, rel=1e-3)
    assert few < many < limit


def test_beyond_thousands_of_layers_the_closed_form_stands_in(monkeypatch):
    cases = [
        dict(layers=4001, widths=10**6, data=250, inputs=10**6),
        dict(layers=4001, widths=10**6, data=1000),
        dict(layers=5000, widths=300, data=300, scale=0.01, skip=1, inputs=300),
    ]
    for case in cases:
        closed = deep_linear(**case)
        with monkeypatch.context() as patched:
            patched.setattr(depth, "MANY", 10**9)
            exact = deep_linear(**case)
        for name in ("lower", "upper", "kappa"):
            assert getattr(closed, name) == pytest.approx(getattr(exact, name), rel=1e-3)
            assert getattr(closed, name) != getattr(exact, name)
        assert mass(closed) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("layers", "width", "skip", "outputs", "draws"), [(4, 120, 0.0, 1, 60), (6, 60, 1.0, 1, 60), (4, 200, 0.0, 6, 16)]
)
def test_networks_scatter_as_much_as_it_says(layers, width, skip, outputs, draws):
    """Means within three of their errors, deviations within a third."""
    law, widths = deep_linear(layers, width, 60, skip=skip, outputs=outputs), [60, *[width] * (layers - 1), outputs]
    found = [of_white_data(widths, seed, skip) for seed in range(draws)]
    logs = np.log(found) - np.log([law.lower, law.upper, law.kappa])
    for index, name in enumerate(("lower", "upper", "kappa")):
        mean, deviation = getattr(law.scatter, name)
        assert logs[:, index].std() == pytest.approx(deviation, rel=1 / 3), name
        assert logs[:, index].mean() == pytest.approx(mean, abs=3 * deviation / draws**0.5 + 0.02), name


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (dict(layers=True), "layers is True"),
        (dict(layers=2.5), "layers is 2.5"),
        (dict(widths=0), "widths is 0"),
        (dict(widths=[5, 5]), "2 widths were given; 4 layers have 3"),
        (dict(widths=[5, 5, 0.5]), "each of the widths is 0.5"),
        (dict(data=[]), "neither a rank nor a list"),
        (dict(data=[0.0, 0.0]), "neither a rank nor a list"),
        (dict(data=[1.0, math.nan]), "neither a rank nor a list"),
        (dict(data=[[1.0]]), "neither a rank nor a list"),
        (dict(data=[1.0, -0.5]), "eigenvalue -0.5"),
        (dict(inputs=7), "rank 8 cannot have fewer"),
        (dict(outputs=2, layers=4001), "up to 4,000 layers, not 4,001"),
        (dict(outputs=9), "outputs is 9; the law is for few"),
        (dict(scale=math.nan), "scale is nan"),
        (dict(scale=[1.0, 2.0]), "one for each of the 4 layers"),
        (dict(scale=[1, 0, 1, 1]), "Layer 2 has scale 0 and no skip"),
        (dict(scale=1e-200), "The first layer's term is 0"),
        (dict(scale=1e200), "The first layer's term is inf"),
        (dict(rates=[1, -1, 1, 1]), "numbers from 0 on"),
        (dict(rates=0), "one layer at least that is trained"),
        (dict(rates=[0, 0, 1, 1], widths=[9, 5, 9]), "3 of 8 eigenvalues are zero: layers 1 to 2 are frozen"),
        (dict(skip=1.0, orthogonal=True), "here they are orthogonal"),
        (dict(skip=1.0, widths=[9, 10, 9]), "equal and no smaller"),
        (dict(skip=1.0, widths=9, inputs=20), "with 20 inputs"),
    ],
    ids=str,
)
def test_what_has_no_law_is_refused(change, said):
    with pytest.raises(ValueError, match=said):
        deep_linear(**(dict(layers=4, widths=10, data=8) | change))


@pytest.mark.bad_input
def test_kappa_and_scatter_that_are_not_known_are_refused():
    for t in (0, math.nan, math.inf, "1"):
        with pytest.raises(ValueError, match="a positive number was expected"):
            kappa(t)
    for case in (dict(data=[1.0, 2.0]), dict(layers=4001), dict(widths=8, rates=[0, 1, 1, 1])):
        law = deep_linear(**(dict(layers=4, widths=10, data=8) | case))
        with pytest.raises(NotImplementedError, match="Scatter is known for white data, up to 4,000 layers"):
            law.scatter  # noqa: B018
