"""The edges of a curve are the ends of its density, for layers of all kinds."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnlib.laws import deep_linear
from gnlib.laws.network import largest_of_ensemble
from gnlib.laws.recursion import Layer, data_curve, density, edge, edge_scatter, layers_curve, sensitivity, turn

widths = st.integers(3, 200)
plain = st.fixed_dictionaries({"widths": st.lists(widths, min_size=1, max_size=5), "orthogonal": st.booleans()})
skips = st.integers(2, 6).flatmap(
    lambda layers: st.fixed_dictionaries(
        {
            "widths": st.integers(100, 200).map(lambda m: [m] * (layers - 1)),
            "skip": st.lists(st.sampled_from([0.0, 0.3, 1.0, 2.0]), min_size=layers, max_size=layers),
            "scale": st.lists(st.sampled_from([0.1, 0.5, 1.0, 2.0]), min_size=layers, max_size=layers),
        }
    )
)


@given(
    st.one_of(plain, skips),
    st.integers(5, 100),
    st.integers(0, 60),
    st.lists(st.sampled_from([0.0, 0.1, 1.0, 3.0]), max_size=3),
)
@settings(max_examples=60)
def test_no_eigenvalue_is_outside_the_edges_and_some_are_right_inside(case, rank, more, rates):
    inputs = rank + more if "orthogonal" in case else rank
    rates = ([1, *rates] * 6)[: len(case["widths"]) + 1]
    law = deep_linear(len(case["widths"]) + 1, data=rank, inputs=inputs, rates=rates, **case)
    low, high = law.lower, law.upper
    outside = np.concatenate([np.linspace(0.5, 0.999, 20) * low, np.linspace(1.001, 3, 20) * high])
    assert law._density(outside).max() * high < 1e-3
    if high > low * (1 + 1e-6) and not case.get("orthogonal"):  # those have eigenvalues at single points
        assert law.density([high - 1e-5 * (high - low)])[0] * high > 1e-6
        if min(case["widths"]) >= rank:
            assert law.density([low + 1e-5 * (high - low)])[0] * high > 1e-6


def test_a_stage_that_turns_before_the_last_is_no_edge_of_the_last():
    """The root finder once came to rest where the fourth of these stages turns, 4 % above the edge."""
    layers = [
        Layer(78, 6.25, 0.0233645, 39.0625, 0.2336449),
        Layer(78, 2.0, 0.00747664, 4.0, 0.02392523),
        Layer(78, 0.2, 0.00186916),
        Layer(78, 0.17, 0.00233645, 0.0289, 0.00021028),
        Layer(78, 6.3866893, 0.00942685, 40.7898, 0.11090409),
    ]
    found = edge(layers_curve(78, layers), 1, 54.6)
    assert found == pytest.approx(368.03, rel=1e-4)
    assert density(layers_curve(78, layers), 78, np.array([found * 0.999]), found) > 1e-5


@pytest.mark.parametrize("ratio", [0.04, 0.25, 0.81])
@pytest.mark.parametrize("side", [-1, 1])
def test_the_edges_of_a_sample_covariance_scatter_by_johnstones_scale(ratio, side):
    """Of X'X for m rows and d columns, variance one: (m^1/2 + d^1/2) (m^-1/2 + d^-1/2)^(1/3), or minus."""
    d = 100
    m = d / ratio
    curve = layers_curve(d, [Layer(d, m, 1.0, term=0.0)])
    known = (m**0.5 + side * d**0.5) * np.cbrt(d**-0.5 + side * m**-0.5)
    v = turn(curve, side, 0.7 * d)
    assert edge(curve, side, 0.7 * d) == pytest.approx((m**0.5 + side * d**0.5) ** 2)
    assert edge_scatter(curve, v) * edge(curve, side, 0.7 * d) == pytest.approx(known, rel=1e-3)


@pytest.mark.parametrize("k", [2, 5, 10, 50])
def test_the_largest_eigenvalue_of_the_orthogonal_ensemble(k):
    a = np.random.default_rng(0).standard_normal((800, k, k))
    drawn = np.linalg.eigvalsh((a + a.transpose(0, 2, 1)) / 2**0.5)[:, -1].mean()
    assert largest_of_ensemble(k) == pytest.approx(drawn, rel=0.1 if k == 2 else 0.02)


@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("data", [None, np.array([0.1, *[1.0] * 48, 30.0])], ids=["white", "single eigenvalues"])
def test_the_sensitivity_is_the_derivative_of_the_edge(side, data):
    layers = [Layer(50, 1.0, 0.01), Layer(50, 0.7, 0.02, 0.1, 0.003), Layer(50, 1.2, 0.005)]
    end = -1 if side > 0 else 0

    def curve(gain):
        inner = layers_curve(50, layers, [1.0, gain, 1.0])
        return inner if data is None else data_curve(inner, 50, np.delete(data, end), data[end])

    found = sensitivity(50, layers, turn(curve(1.0), side, 35.0))
    ends = [edge(curve(1 + h), side, 35.0) for h in (-1e-4, 1e-4)]
    assert found[1] == pytest.approx(math.log(ends[1] / ends[0]) / 2e-4, rel=1e-4)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "scale", [[1, 1e-150, 1], [1, 1e100, 1e-100], [1e-100, 1e100, 1], [1e150, 1e-100, 1e-20]], ids=str
)
def test_an_edge_beyond_double_precision_is_refused(scale):
    with pytest.raises((ArithmeticError, ValueError), match="choose scales nearer to 1"):
        deep_linear(3, 10, 8, scale=scale)
