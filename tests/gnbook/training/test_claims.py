"""Zhao 2024, section 1 and appendices C, D and I.2, as far as they are about training, and consequences."""

import itertools
from functools import partial

import pytest
import torch
from gnbook import results
from gnbook.shared.epochs import train_epochs
from gnbook.shared.hidden_layer import leaky_relu_gram
from gnbook.shared.networks import FullyConnected, xavier_weights
from gnbook.shared.training import half_squared_error, one_hot
from hypothesis import assume, given
from hypothesis import strategies as st

import gnlib
from gnlib import bounds
from tests import strategies
from tests.oracles import norm
from tests.strategies import exact, gaussian, jacobian, networks, orthogonal, problems, seeds, spectra

EPS32, EPS64 = torch.finfo(torch.float32).eps, torch.finfo(torch.float64).eps


def condition(weights, moment):
    return float(gnlib.condition_number(gnlib.linear_gauss_newton(weights, moment)))


def steps(weights, x, y, rate, number):
    """Return the weights before and after each step of gradient descent."""
    path = [weights]
    for _ in range(number):
        here = [w.clone().requires_grad_() for w in path[-1]]
        grads = torch.autograd.grad(half_squared_error(gnlib.linear_network(here, x), y), here)
        path.append([w.detach() - rate * g for w, g in zip(here, grads, strict=True)])
    return path


@pytest.mark.claim("Section 1, bounds at any weights", verdict="holds")
@strategies.a_hundred
@given(problems(wide=True, regular=True), seeds, st.sampled_from([1e-3, 0.03, 0.3]))
def test_the_bounds_hold_at_every_step_of_gradient_descent(problem, seed, rate):
    weights, x = problem
    scale = gnlib.linear_network(weights, x).norm() / len(x) ** 0.5 + x.norm()
    y = gaussian(seed, len(x), len(weights[-1])) * scale
    moment = gnlib.SecondMoment.from_data(x)
    curvature = norm(jacobian(weights, x)) ** 2 / len(x)
    for here in steps(weights, x, y, rate / curvature, 4):
        if not all(w.abs().max() < 1e6 for w in here):  # descent has diverged
            return
        found = gnlib.condition_number(gnlib.linear_gauss_newton(here, moment))
        lemma, sharp = bounds.zhao_lemma_2(here, moment).first, bounds.sharp_linear(here, moment)
        if lemma > 1e10:  # not resolved by double precision
            return
        assert found.value <= sharp * (1 + 1e-3) and sharp <= lemma * (1 + 1e-3)


@pytest.mark.claim("Appendix D, an indication at initialisation", verdict="holds if")
@pytest.mark.parametrize("target", [1.0, 2.0, 5.0, 20.0])
def test_a_perfect_start_says_nothing_of_the_end(target):
    x, eye = 2**0.5 * torch.eye(2).double(), torch.eye(2).double()
    path = steps([eye, eye], x, x * exact([target, 1.0]), 0.2 / target, 800)
    assert condition(path[0], eye) == pytest.approx(1) and condition(path[-1], eye) == pytest.approx(target, rel=1e-4)


@pytest.mark.claim("Appendix D, tight throughout training", verdict="fails")
def test_for_white_data_a_bound_that_is_tight_at_first_can_become_loose():
    """Three layers, as wide as the lemma asks for; few draws are like this one, the worst of 24,000."""
    x, seed = 3**0.5 * torch.eye(3, dtype=torch.float64), 14804
    shapes = ((4, 3), (4, 4), (2, 4))
    weights = [gaussian(seed + i, *shape) / shape[1] ** 0.5 for i, shape in enumerate(shapes)]  # Kaiming
    path = steps(weights, x, x @ gaussian(seed + 3, 2, 3).mT, 0.05, 1500)
    ratios = [
        bounds.zhao_lemma_2(here, torch.eye(3)).first / condition(here, torch.eye(3)) for here in (path[0], path[-1])
    ]
    assert (gnlib.linear_network(path[-1], x) - x @ gaussian(seed + 3, 2, 3).mT).norm() < 1e-12
    assert ratios == [pytest.approx(1.004, abs=1e-3), pytest.approx(3.564, abs=1e-3)]


@pytest.mark.claim("Figure 18, width improves speed and conditioning", verdict="fails")
def test_at_the_size_of_figure_18_a_wider_network_ends_up_worse_and_changes_more():
    kept = [row for row in results.kept("counting-zeros") if row["figure"] == 18 and row["relu_images"] == 1000]
    kappa = {(row["width"], row["seed"], row["epoch"]): row["kappa_float64"] for row in kept}
    narrow, wide = ([[kappa[m, seed, 0], kappa[m, seed, 100]] for seed in range(3)] for m in (15, 50))
    worse = sorted(after / other for (_, after), (_, other) in zip(wide, narrow, strict=True))
    assert len(worse) == 3 and worse[0] > 0.99 and worse[1] > 2  # in one draw both end at the cap
    changed, less = ([max(ends) / min(ends) for ends in some] for some in (wide, narrow))
    assert min(changed) > 1e5 > 10 * max(less)


def spreads(width, seed):
    """By how much kappa of a ReLU network differs between thresholds of 2e-16 and 1e-8, before and after training."""
    x, labels = gnlib.load("mnist", 80, stride=4)
    net = FullyConnected(
        xavier_weights([49, width, 10], generator=torch.Generator().manual_seed(seed)), relu=True, dtype=torch.float64
    )

    def spread():
        values = torch.linalg.eigvalsh(leaky_relu_gram(net.weights(), x, 0.0)).flip(0)
        fine, coarse = (values[values > threshold * values[0]][-1] for threshold in (len(values) * EPS64, 1e-8))
        return (coarse / fine).item()

    before, rate = spread(), partial(torch.optim.SGD, lr=0.3 if width <= 20 else 0.5)
    options = {"epochs": 100, "batch_size": 40, "every": 100, "loss": torch.nn.functional.mse_loss}
    train_epochs([net], x, one_hot(labels, 10), rate, seeds=[0], **options)
    return before, spread()


@pytest.mark.claim("Appendix C, robust before training and sensitive after", verdict="holds if")
def test_training_can_make_the_condition_number_depend_on_the_threshold_or_no_longer():
    before, after = spreads(25, 0)
    assert before == 1 and after > 1.5  # as in the paper
    before, after = spreads(15, 0)
    assert before > 50 and after == 1  # the other way round
    assert all(spreads(160, seed) == (1, 1) for seed in range(4))


@st.composite
def balanced(draw):
    """Draw layers with `W_{l+1}^T W_{l+1} = W_l W_l^T`: common singular values, and neighbours share their vectors."""
    depth, d, k = draw(st.integers(2, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    rank = min(d, k)
    widths = [d, *(rank + draw(st.integers(0, 3)) for _ in range(depth - 1)), k]
    values = exact(draw(st.lists(st.sampled_from([0.3, 1.0, 1.5, 4.0]), min_size=rank, max_size=rank)))
    seed = draw(seeds)
    bases = [orthogonal(seed + i, width)[:, :rank] for i, width in enumerate(widths)]
    return [after * values @ before.mT for before, after in itertools.pairwise(bases)]


@pytest.mark.claim("Balanced layers, tight", verdict="holds")
@given(balanced())
def test_for_white_data_and_balanced_layers_lemma_2_is_the_condition_number(weights):
    for before, after in itertools.pairwise(weights):
        torch.testing.assert_close(after.mT @ after, before @ before.mT, rtol=0, atol=1e-12)
    d = weights[0].shape[1]
    values = torch.linalg.svdvals(jacobian(weights, d**0.5 * torch.eye(d).double())).square()
    bound = bounds.zhao_lemma_2(weights, torch.eye(d)).first
    assert bound == pytest.approx((values[0] / values[d * len(weights[-1]) - 1]).item(), rel=1e-6)


@pytest.mark.claim("Condition number near the initial weights", verdict="holds")
@given(problems(regular=True, wide=True), seeds, st.sampled_from([1e-3, 1e-2, 0.1, 1.0]))
def test_singular_values_move_by_no_more_than_the_jacobian(problem, seed, size):
    weights, x = problem
    moved = [w + size * w.norm() * gaussian(seed + i, *w.shape) / w.numel() for i, w in enumerate(weights)]
    first, last = (jacobian(ws, x) / len(x) ** 0.5 for ws in (weights, moved))
    rank = x.shape[1] * len(weights[-1])
    old, new = (torch.linalg.svdvals(j)[:rank] for j in (first, last))
    delta = norm(last - first)
    assert ((new - old).abs() <= delta * (1 + 1e-9) + 1e-12 * old[0]).all()
    assume(delta < 0.99 * old[-1])
    assert new[0] / new[-1] <= (old[0] + delta) / (old[-1] - delta) * (1 + 1e-6)


@pytest.mark.claim("Condition number near the initial weights", verdict="holds")
def test_the_bound_by_the_distance_is_attained():
    x = 2**0.5 * torch.eye(2, dtype=torch.float64)
    v, w = torch.diag(exact([3.0, 2.0])), torch.zeros(1, 2, dtype=torch.float64)
    first, last = (jacobian([a, w], x) / 2**0.5 for a in (v, v + torch.diag(exact([0.5, -0.5]))))
    old, new, delta = torch.linalg.svdvals(first), torch.linalg.svdvals(last), norm(last - first)
    assert (new[0] / new[-1]).item() == pytest.approx(((old[0] + delta) / (old[-1] - delta)).item(), rel=1e-12)


@pytest.mark.claim("Distance of two networks with one hidden layer", verdict="holds")
@given(networks(fewest=2, most=2), seeds, st.integers(0, 4), st.booleans())
def test_the_distance_of_jacobians_is_that_of_the_weights(weights, seed, more, both):
    v, w = weights
    dv, dw, d = both * gaussian(seed, *v.shape), gaussian(seed + 1, *w.shape), v.shape[1]
    x = (d + more) ** 0.5 * orthogonal(seed, d + more)[:, :d]  # white
    delta = norm(jacobian([v + dv, w + dw], x) - jacobian([v, w], x)) / len(x) ** 0.5
    assert delta**2 == pytest.approx(norm(dv) ** 2 + norm(dw) ** 2, rel=1e-9)


@pytest.mark.claim("A relative threshold caps the condition number", verdict="holds")
@given(st.integers(1, 12).flatmap(lambda n: spectra(n, lowest=0)), st.sampled_from([1e-12, 1e-7, 1e-3, 0.5]))
def test_what_is_kept_is_above_the_threshold(values, threshold):
    values = values.sort(descending=True).values
    assume(values[0] > 0)
    kept = values[values > threshold * values[0]]
    assert kept[0] / kept[-1] < 1 / threshold
    dropped = values[len(kept) :]
    if len(dropped) and dropped[0] > 0:  # by how much the cap is missed: at most the gap
        assert kept[0] / kept[-1] >= 1 / threshold * (dropped[0] / kept[-1]) * (1 - 1e-12)


@pytest.mark.claim("What single precision determines", verdict="holds")
@given(networks(), seeds)
def test_rounding_the_jacobian_costs_its_square_in_the_gram_matrix(weights, seed):
    j = jacobian(weights, gaussian(seed, 5, weights[0].shape[1]))
    assume(j.norm() > 1e-6)
    j = j / j.norm()
    gram, unit = j @ j.mT, EPS32 / 2
    tiny = torch.finfo(torch.float32).tiny * j.numel()
    rounded = torch.linalg.eigvalsh(gram.float().double())
    assert ((rounded - torch.linalg.eigvalsh(gram)).abs() <= unit * gram.norm() + tiny + 1e-14).all()
    s = torch.linalg.svdvals(j.float().double())
    assert ((s - torch.linalg.svdvals(j)).abs() <= unit * j.norm() + tiny + 1e-14).all()
    c = 2.0**-13
    j = exact([[1.0, 0.0], [1.0, c]])  # exact in single precision, with eigenvalues near 2 and c^2 / 2: the Gram matrix
    assert torch.linalg.det((j @ j.mT).float().double()) == 0  # loses the small one, and not the Jacobian
    assert torch.linalg.svdvals(j.float().double())[-1].item() == pytest.approx(c / 2**0.5, rel=1e-6)
