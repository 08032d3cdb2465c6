"""Zhao 2024, section 4.1 and appendices G and H: linear networks with one hidden layer. All draws are seeded."""

import math

import pytest
import torch
from gnbook.one_hidden_layer.bounds import asymptotic_bound, from_below, zhao_lemma_6, zhao_lemma_7
from hypothesis import given
from hypothesis import strategies as st

from gnlib import SecondMoment, whiten
from gnlib.linear.bounds import zhao_lemma_1
from tests.oracles import identity
from tests.strategies import (
    a_hundred,
    data_condition,
    diagonal,
    exact,
    gaussian,
    instances,
    kron,
    problems,
    samples,
    seeds,
    square_root,
    squares,
    true_condition,
    up_to_rounding,
)


def ratio_of_sums(v, w):
    """Return (smax^2(W) + smax^2(V)) / (smin^2(W) + smin^2(V)), zero-padded: lambda_min(W W^T), lambda_min(V^T V)."""
    w, v = squares(w, w.shape[0]), squares(v, v.shape[1])
    return ((w[0] + v[0]) / (w[-1] + v[-1])).item()


def unpadded(v, w):
    """Return the same with the smallest singular values that are not zero."""
    v, w = (s[s > 1e-12 * s[0]] ** 2 for s in map(torch.linalg.svdvals, (v, w)))
    return ((w[0] + v[0]) / (w[-1] + v[-1])).item()


def as_convex_combination(v, w):
    """Return Eq. 6, and the maximum in place of the combination."""
    w, v = squares(w, w.shape[0]), squares(v, v.shape[1])
    beta = w[-1] / (w[-1] + v[-1])
    return (beta * (w[0] / w[-1]) + (1 - beta) * (v[0] / v[-1])).item(), max(w[0] / w[-1], v[0] / v[-1]).item()


@pytest.mark.claim("Lemma 1", verdict="holds")
@pytest.mark.claim("Lemma 1 for narrow layers", verdict="holds if")
@pytest.mark.claim("Lemma 1, equality for white data", verdict="holds")
@instances
@given(problems(2, 2), problems(2, 2, wide=True))
def test_lemma_1_for_any_width_with_zero_padded_singular_values_and_its_equality_for_white_data(any_width, wide):
    for (v, w), x in (any_width, wide):
        if (true := true_condition([v, w], x)) is not None:
            bound, printed = zhao_lemma_1([v, w], SecondMoment.from_data(x)), data_condition(x) * ratio_of_sums(v, w)
            assert true <= bound * up_to_rounding(true) and true <= printed * up_to_rounding(true)
            # on the range of the data V has no larger and no smaller singular values than on the whole space
            assert bound <= printed * up_to_rounding(bound) or bound > 1e20
    (v, w), x = any_width
    white = whiten(x)
    moment = SecondMoment.from_data(white)
    torch.testing.assert_close(moment.eigenvalues, torch.ones(len(moment.eigenvalues)).double())
    bound = zhao_lemma_1([v, w], moment)
    if bound < 1e12:
        assert true_condition([v, w], white) == pytest.approx(bound, rel=1e-6)
        if x.shape[1] == len(moment.eigenvalues):
            assert bound == pytest.approx(ratio_of_sums(v, w), rel=1e-6)


@pytest.mark.claim("Lemma 1 with smallest non-zero singular values", verdict="fails")
@pytest.mark.claim("Lemma 1 for narrow layers", verdict="holds if")
@pytest.mark.parametrize(("v", "w"), [(diagonal([1], 3, 2), diagonal([1], 1, 3)), (exact([[1, 0]]), exact([[1]]))])
def test_lemma_1_needs_the_singular_values_that_are_zero_and_a_narrow_layer_zero_padded_ones(v, w):
    assert unpadded(v, w) == 1 and zhao_lemma_1([v, w], identity(2)) == 2
    assert true_condition([v, w], identity(2)) == pytest.approx(2, rel=1e-12)


@pytest.mark.claim("Lemma 1", verdict="holds")
@pytest.mark.claim("Lemma 1 with smallest non-zero singular values", verdict="fails")
@pytest.mark.claim("Lemma 1, from below", verdict="holds")
@pytest.mark.claim("Eq. 6, the equality", verdict="holds if")
@pytest.mark.claim("Lemma 1, the maximum in place of the combination", verdict="holds")
@instances
@given(problems(2, 2, wide=True, regular=True), st.sampled_from([0.1, 1.0, 10.0]))
def test_all_forms_of_lemma_1_and_the_bound_from_below_where_both_layers_are_regular(problem, scale):
    (v, w), x = problem
    true, moment, data = true_condition([v, w], x), SecondMoment.from_data(x), data_condition(x)
    ratio, (combination, maximum) = ratio_of_sums(v, w), as_convex_combination(v, w)
    assert zhao_lemma_1([v, w], moment) == pytest.approx(data * ratio, rel=1e-6)
    assert (unpadded(v, w), combination) == pytest.approx((ratio, ratio), rel=1e-9)
    assert true <= data * ratio * up_to_rounding(true) and ratio <= maximum * (1 + 1e-6)
    assert true >= from_below((v, w), moment) / up_to_rounding(true)
    even = scale * torch.linalg.qr(v).Q  # for which the bound from below is an equality
    assert true_condition([even, w], x) == pytest.approx(from_below((even, w), moment), rel=1e-6)


@pytest.mark.claim("Eq. 6, the equality", verdict="holds if")
def test_the_convex_combination_is_undefined_where_one_matrix_is_singular():
    v, w = diagonal([1], 3, 2), diagonal([1, 1], 2, 3)  # m = 3 > max(d, k) = 2
    assert torch.isnan(torch.tensor(as_convex_combination(v, w)[0]))
    assert ratio_of_sums(v, w) == 2
    assert true_condition([v, w], identity(2)) == pytest.approx(2, rel=1e-12)


@pytest.mark.claim("Appendix H, steps of the proof of Lemma 1", verdict="holds")
@instances
@given(problems(2, 2))
def test_each_step_of_the_proof_of_lemma_1(problem):
    (v, w), x = problem
    sigma = x.mT @ x / len(x)
    root, gram = square_root(sigma), v.mT @ v
    first, second = kron(w @ w.mT, sigma), kron(identity(len(w)), root @ gram @ root)
    matrices = (first + second, first, second, root @ gram @ root, w @ w.mT, gram, sigma)
    ends = torch.stack([torch.linalg.eigvalsh(matrix)[[-1, 0]] for matrix in matrices]).mT
    tolerance = 1e-12 * (ends[0, 1] + ends[0, 2] + ends[0, 6] * (ends[0, 4] + ends[0, 5]))
    for sign, (total, of_first, of_second, inner, wide, below, data) in zip((1, -1), ends, strict=True):
        assert sign * (total - of_first - of_second) <= tolerance
        assert abs(of_first - wide * data) <= tolerance and abs(of_second - inner) <= tolerance
        assert sign * (inner - data * below) <= tolerance


@pytest.mark.claim("Remark R2", verdict="holds if")
def test_white_data_can_be_worse_than_others():
    v, w = exact([[0, 1], [0, 0], [0, 0]]), exact([[1, 0, 0]])  # m = 3 > 2 = max(d, k)
    assert true_condition([v, w], identity(2)) == pytest.approx(2, rel=1e-12)
    assert true_condition([v, w], exact([[2**0.5, 0], [0, 1]])) == pytest.approx(1, rel=1e-12)


shapes = st.tuples(*(st.integers(1, 12),) * 3)  # d, m, k
variances = st.sampled_from([1e-4, 0.1, 1.0, 30.0])


def ends(draws):
    """Return the extreme singular values of each N x n matrix in a batch, the smallest zero-padded to n of them."""
    s = torch.linalg.svdvals(draws)
    rows, columns = draws.shape[-2:]
    return s[..., 0], s[..., -1] * (rows >= columns)


@pytest.mark.claim("Lemma 6", verdict="holds")
@a_hundred
@given(seeds, st.integers(1, 12), st.integers(1, 12), st.floats(0, 5))
def test_the_singular_values_are_within_the_interval_as_often_as_stated(seed, rows, columns, t):
    largest, smallest = ends(gaussian(seed, 500, rows, columns))
    lower, upper = zhao_lemma_6(rows, columns, t)
    within = ((smallest >= lower) & (largest <= upper)).double().mean().item()
    assert within >= 1 - 2 * math.exp(-(t**2) / 2) - 6 * math.sqrt(0.25 / 500)  # but for six standard deviations
    assert (lower, upper) == pytest.approx((rows**0.5 - columns**0.5 - t, rows**0.5 + columns**0.5 + t), abs=1e-12)


def printed_lemma_7(d, m, k, t, variance_v, variance_w):
    """Return the bound of Lemma 7 as printed: the differences are squared whatever their sign."""
    m, d, k = math.sqrt(m), math.sqrt(d), math.sqrt(k)
    above = variance_w * (m + k + t) ** 2 + variance_v * (m + d + t) ** 2
    below = variance_w * (m - k - t) ** 2 + variance_v * (m - d - t) ** 2
    return above / below if below else math.inf


def white_conditions(seed, draws, d, m, k, variance_v, variance_w):
    """Return condition numbers for white data, exactly, of V and W with m >= max(d, k) that are drawn."""
    (v_top, v_bottom), (w_top, w_bottom) = ends(gaussian(seed, draws, m, d)), ends(gaussian(seed + 1, draws, m, k))
    top = variance_w * w_top**2 + variance_v * v_top**2
    return top / (variance_w * w_bottom**2 + variance_v * v_bottom**2)


@pytest.mark.claim("Lemma 7", verdict="fails")
@pytest.mark.claim("Eq. 20", verdict="fails")
@pytest.mark.parametrize(
    ("d", "m", "k", "t", "most"), [*((2, 2, 2, t, 0.25) for t in (2.5, 4.0, 6.0)), (4, 8, 1, 6.0, 0.8)]
)
def test_lemma_7_promises_more_than_there_is(d, m, k, t, most):
    frequency = white_conditions(0, 4000, d, m, k, 1 / d, 1 / m) <= printed_lemma_7(d, m, k, t, 1 / d, 1 / m)
    promised = 1 - 8 * math.exp(-(t**2) / 2)
    assert promised > 0.6 and frequency.double().mean() < most < promised


@pytest.mark.claim("Lemma 7, repaired", verdict="holds")
@instances
@given(seeds, shapes, st.data(), variances, variances)
def test_the_repaired_bound_holds_for_every_draw_within_the_intervals_of_lemma_6(
    seed, shape, data, variance_v, variance_w
):
    (d, m, k), deviation = shape, 0  # of any width
    v, w = gaussian(seed, m, d), gaussian(seed + 1, k, m)
    for matrix in (v, w.mT):
        (largest, smallest), (lower, upper) = map(float, ends(matrix)), zhao_lemma_6(*matrix.shape, 0)
        deviation = max(deviation, largest - upper, lower - smallest)
    weights, x = [variance_v**0.5 * v, variance_w**0.5 * w], data.draw(samples(d))
    true, moment = true_condition(weights, x), SecondMoment.from_data(x)
    kappa = (moment.eigenvalues[0] / moment.eigenvalues[-1]).item()
    bound = zhao_lemma_7(d, m, k, deviation, variance_v=variance_v, variance_w=variance_w, data=kappa)
    assert zhao_lemma_1(weights, moment) <= bound * (1 + 1e-6)
    assert true <= bound * up_to_rounding(true)
    printed = printed_lemma_7(d, m, k, deviation, variance_v, variance_w)
    if m**0.5 >= max(d, k) ** 0.5 + deviation:  # no difference is negative
        assert bound == pytest.approx(kappa * printed)


@pytest.mark.claim("Eq. 21", verdict="holds if")
@instances
@given(st.integers(1, 1000), st.integers(1, 1000), st.floats(0, 5), st.floats(1e-6, 0.99))
def test_the_middle_of_eq_21_is_an_upper_bound_of_eq_20(d, k, t, r):
    k, m = min(d, k), (math.sqrt(d) + t) ** 2 / r**2
    middle = ((1 + r) / (1 - r)) ** 2
    eq_20 = zhao_lemma_7(d, m, k, t, variance_v=1 / d, variance_w=1 / m)
    smaller = ((math.sqrt(m) + math.sqrt(k) + t) / (math.sqrt(m) - math.sqrt(k) - t)) ** 2
    assert smaller * (1 - 1e-9) <= eq_20 <= middle * (1 + 1e-9)
    assert middle - 1 == pytest.approx(4 * r / (1 - r) ** 2, rel=1e-6)
    last = 1760**-0.5  # the root of d / m, at t = 0: ten percent off until then
    assert ((1 + last) / (1 - last)) ** 2 > 1.1 > ((1 + 1764**-0.5) / (1 - 1764**-0.5)) ** 2


@pytest.mark.claim("Appendix G.2, edges of the spectra", verdict="fails")
@instances
@given(seeds, shapes, variances)
def test_v_v_transposed_is_singular_whatever_the_draw(seed, shape, variance):
    d, m = shape[0], shape[1] + shape[0]
    v = variance**0.5 * gaussian(seed, m, d)
    values = torch.linalg.eigvalsh(v @ v.mT)
    assert abs(values[0]) <= 1e-12 * values[-1]
    assert variance * m * (1 - math.sqrt(d / m)) ** 2 > 1e-3 * values[-1] / m


@pytest.mark.claim("Eq. 22", verdict="holds")
@pytest.mark.parametrize(("inputs", "outputs"), [(0.1, 0.02), (0.5, 0.5), (0.3, 0.9), (1.0, 0.25)])
@pytest.mark.parametrize("kaiming", [True, False])
def test_lemma_1_converges_to_the_asymptotic_bound(inputs, outputs, kaiming):
    errors = []
    for m in (40, 160, 640):
        d, k = round(inputs * m), round(outputs * m)
        variance_v, variance_w = (1 / d, 1 / m) if kaiming else (1.0, 0.3)
        limit = asymptotic_bound(d, m, k, variance_v=variance_v, variance_w=variance_w)
        y, z = math.sqrt(d / m), math.sqrt(k / m)
        edges = [variance_w * (1 + s * z) ** 2 + variance_v * (1 + s * y) ** 2 for s in (1, -1)]
        assert limit == pytest.approx(edges[0] / edges[1], rel=1e-9)
        kappas = white_conditions(5, 3, d, m, k, variance_v, variance_w)
        errors.append(abs(kappas / limit - 1).mean().item())
    assert errors[-1] < min(errors[0], 0.12)
