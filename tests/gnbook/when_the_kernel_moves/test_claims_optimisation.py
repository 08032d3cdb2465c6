"""Liu, Zhu and Belkin 2020, sections 4 to 6, appendix B, Table 1: outputs that are not linear, descent, experiments."""

import math

import pytest
import torch
from gnbook.shared.hessian import hessian_ends
from gnbook.when_the_kernel_moves.descent import liu_theorem_5_1
from gnbook.when_the_kernel_moves.heads import Entrywise, Softmax, output_kernel, swish
from gnbook.when_the_kernel_moves.networks import bottleneck, identity, shallow
from hypothesis import given
from hypothesis import strategies as st

from gnlib import GaussNewton
from tests.gnbook.when_the_kernel_moves.helpers import SLACK, TINY, half_square, inputs, slopes
from tests.oracles import norm
from tests.strategies import exact, gaussian, instances, orthogonal, seeds


@pytest.mark.claim("Liu Section 5, a kernel as well conditioned", verdict="holds if")
@instances
@given(seeds, st.integers(1, 6), st.sampled_from([1.0, 1e3]), st.floats(0.1, 3), st.floats(1, 4))
def test_the_condition_number_of_the_output_is_at_most_a_square_of_slopes_times_that_of_f(seed, n, kappa, low, ratio):
    q = orthogonal(seed, n)
    kernel = q * torch.linspace(1, kappa, n).double() @ q.mT
    first = low * (1 + (ratio - 1) * torch.rand(n, generator=torch.Generator().manual_seed(seed)).double())
    tilde = output_kernel((kernel + kernel.mT) / 2, first[:, None, None])
    values, own = torch.linalg.eigvalsh(tilde), torch.linalg.eigvalsh(kernel)
    assert values[-1] / values[0] <= own[-1] / own[0] * (first.max() / first.min()) ** 2 * (1 + 1e-7)
    assert values[0] >= low**2 * own[0] * (1 - 1e-7)
    slope = exact([1.0, 1000.0])  # phi' = 1 + z^2 at z = 0 and about 31.6: without an upper bound
    assert torch.linalg.cond(output_kernel(torch.eye(2).double(), slope[:, None, None])).item() == pytest.approx(1e6)


@pytest.mark.claim("Liu Theorem 5.1", verdict="holds if")
@pytest.mark.claim("Descent where the kernel stays definite", verdict="holds")
def test_rate_and_radius_by_hand():
    result = liu_theorem_5_1(exact([[8.0, 0.0], [0.0, 18.0]]), exact([3.0, 4.0]), 0.5)  # mu = 4, rho = 1/2, |r_0| = 5
    assert (result.radius, result.rate) == pytest.approx((10.0, 1.0), rel=1e-12)
    assert 0.9 ** result.steps(0.1, 7.0) == pytest.approx(1 / 7, rel=1e-12)


@pytest.mark.claim("Liu Theorem 5.1", verdict="holds if")
@pytest.mark.parametrize("seed", range(2))
def test_descent_converges_at_the_rate_of_the_smallest_eigenvalue(seed):
    n, d = 2 + seed % 3, 1 + seed % 2  # samples, no two of them close, with an entry of one for the biases
    spread = torch.linspace(-1.5, 1.5, n).double()[:, None] * (1 + gaussian(seed, 1, d).abs())
    turned = spread * gaussian(seed + 100, 1, d).sign() + 0.1 * gaussian(seed + 200, n, d)
    x, y = torch.cat([turned, torch.ones(n, 1).double()], 1), gaussian(seed + 300, n, 1)
    network = shallow(10_000, 1, inputs=d + 1, activation=torch.tanh, seeds=[seed])

    def residual():  # of an output whose slope is between one half and three halves
        f = network(x)[0]
        return f + torch.sin(f) / 2 - y

    kernel, start = network.kernel(x)[0], [w.detach().clone() for w in network.weights]
    rate = liu_theorem_5_1(kernel, residual().flatten().detach(), 0.5)
    eta = 0.5 / (2 * torch.linalg.eigvalsh(kernel)[-1].item())
    descent, losses = torch.optim.SGD(network.parameters(), lr=eta), []
    for step in range(101):
        loss = residual().square().sum() / 2
        losses.append(loss.item())
        if step:
            assert losses[-1] <= (1 - eta * rate.rate) * losses[-2]
            assert losses[-1] <= (1 - eta * rate.rate) ** step * losses[0]
        if step % 10 == 9:
            assert torch.linalg.eigvalsh(network.kernel(x)[0])[0] >= rate.rate / 0.5**2
        descent.zero_grad()
        loss.backward()
        descent.step()
    distance = sum((w - w0).square().sum() for w, w0 in zip(network.weights, start, strict=True)) ** 0.5
    assert distance <= rate.radius
    assert losses[min(100, math.ceil(rate.steps(eta, 2.0)))] <= losses[0] / 2 or rate.steps(eta, 2.0) > 100


@pytest.mark.claim("Descent where the kernel stays definite", verdict="holds")
@instances
@given(seeds, st.integers(1, 3), st.floats(0.3, 2))
def test_descent_on_a_model_with_a_definite_kernel_stays_within_the_radius(seed, n, low):
    q, y = orthogonal(seed, n + 2)[:, :n], gaussian(seed + 2, n)
    start = w = gaussian(seed + 1, n + 2)

    def residual(w):  # of a model with slopes between low and 3 low, kernel low^2 to 9 low^2
        z = w @ q
        return low * (2 * z + torch.sin(z)) - y

    first = residual(start)
    rate = liu_theorem_5_1(2 * low**2 * torch.eye(n).double(), first, 1.0)  # mu = low^2
    eta, losses, way = 1 / (9 * low**2 + low * first.norm().item()), [(first @ first).item() / 2], 0.0
    for _ in range(100):
        step = eta * q @ (low * (2 + torch.cos(w @ q)) * residual(w))
        w, way = w - step, way + step.norm().item()
        losses.append(residual(w).square().sum().item() / 2)
        assert losses[-1] <= (1 - eta * rate.rate) * losses[-2] * SLACK + 1e-25
    assert (w - start).norm() <= way * SLACK <= rate.radius * SLACK**2 + TINY
    gone = 1 - math.sqrt(losses[-1] / losses[0]) if losses[0] else 0.0
    assert way <= rate.radius * gone * SLACK + TINY  # the steps add up to a share of the radius, as in the proof


# ---- Section 4: an output that is not linear ------------------------------------------------------------------------

OUTPUTS = [swish, torch.sigmoid, torch.sin, torch.nn.functional.softplus, identity, half_square]


def scalar(m, seed, x):
    """A network with one hidden layer, biases and one output, as a function of its weights, and weights for it."""

    def f(theta):
        w, b, v = theta.split(m)
        return v @ torch.tanh(w * x + b) / m**0.5

    return f, gaussian(seed, 3 * m)


@pytest.mark.claim("Liu Eq. 27", verdict="holds")
@pytest.mark.parametrize("phi", OUTPUTS)
@pytest.mark.parametrize("m, n", [(1, 1), (5, 4)])
def test_the_kernel_of_the_output_is_that_of_f_times_slopes(m, n, phi):
    network, x = shallow(m, 2, activation=torch.tanh, seeds=[m]), gaussian(n, n, 2)
    first = Entrywise(phi).slopes(network(x)[0])
    kernel = GaussNewton(network, x, output=lambda y: y[0]).tangent_kernel()
    expected = GaussNewton(network, x, output=lambda y: phi(y[0])).tangent_kernel()
    atol = 1e-10 * (1 + norm(expected))
    assert torch.allclose(output_kernel(kernel, first), expected, atol=atol)
    squares = first.diagonal(dim1=1, dim2=2).flatten() ** 2
    assert torch.allclose(expected.diagonal(), squares * kernel.diagonal(), atol=atol)


def change_floor(before, after, slope, new_slope):
    """A - B, from the diagonal of the kernel of f at two points and the slopes of the output there."""
    return abs(new_slope**2 - slope**2) * before - new_slope**2 * abs(after - before)


@pytest.mark.claim("Liu Section 4, change of the kernel", verdict="holds")
@instances
@given(seeds, st.integers(1, 5), inputs, st.sampled_from(OUTPUTS), st.sampled_from([0.0, 0.1, 1.0, 10.0]))
def test_the_kernel_of_the_output_changes_at_least_by_a_minus_b(seed, m, x, phi, size):
    f, start = scalar(m, seed, x)
    kernels, first, tilde = [], [], []
    for w in (start, start + size * gaussian(seed + 1, 3 * m)):
        kernels.append(torch.func.grad(f)(w).square().sum().item())
        first.append(slopes(phi, f(w).item())[0])
        tilde.append(torch.func.grad(lambda w: phi(f(w)))(w).square().sum().item())
    assert abs(tilde[1] - tilde[0]) >= change_floor(*kernels, *first) - TINY * (1 + sum(tilde))
    assert change_floor(2.0, 2.0, 1.0, 3.0) == 3**2 * 2 - 1**2 * 2  # attained by a kernel that does not move


@pytest.mark.claim("Liu Section 4, term A, corrected", verdict="holds")
@instances
@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(0, 5), st.sampled_from([swish, torch.exp, half_square]))
def test_the_squared_slope_changes_on_the_way_to_a_label_where_slopes_are_monotone(start, end, kernel, phi):
    if phi is half_square:
        start, end = abs(start), abs(end)  # the slope is z
    (a, bend_a), (b, bend_b) = (slopes(phi, z) for z in (start, end))
    bend = min(bend_a, bend_b)  # least in between too: that of swish has one maximum, that of the others none
    assert bend > 0 and min(a, b) >= 0
    floor, least = change_floor(kernel, kernel, a, b), bend * (a + b) * abs(start - end) * kernel  # B = 0
    assert floor >= least * (1 - 1e-9) - TINY
    assert phi is not half_square or math.isclose(floor, least, rel_tol=1e-9, abs_tol=TINY)


def late(z):
    """Twice differentiable and not linear, but only where z > 100."""
    return z + (z - 100).clamp_min(0) ** 3


@pytest.mark.claim("Liu Section 4, a linear output is necessary", verdict="fails")
@pytest.mark.claim("Liu Section 4, term A", verdict="fails")
@pytest.mark.claim("Liu Section 4, a Hessian of order one", verdict="fails")
@pytest.mark.claim("Liu Remark 4.1", verdict="fails")
@pytest.mark.claim("Liu Table 1, non-linear output layer", verdict="fails")
@instances
@given(seeds, st.sampled_from([0.5, 3.0]))
def test_an_output_that_is_not_linear_elsewhere_is_linear_in_the_whole_ball(seed, radius):
    f, start = scalar(200, seed, 1.0)
    step = gaussian(seed + 1, 600)
    for size in (0.0, 0.5, 1.0):
        gradients, curved = zip(
            *(
                torch.func.jvp(torch.func.grad(g), (start + radius * size * step / step.norm(),), (step,))
                for g in (f, lambda w: late(f(w)))
            ),
            strict=True,
        )
        assert torch.equal(*gradients) and torch.equal(*curved)
    assert start[400:].norm() + radius < 100  # |f| <= |v| at all points of the ball, as |tanh| < 1
    assert slopes(late, 101.0)[1] > 0


@pytest.mark.claim("Liu Eq. 28", verdict="holds")
@pytest.mark.claim("Liu Eq. 29", verdict="holds")
@pytest.mark.claim("Liu Section 4, a linear output is necessary, corrected", verdict="holds")
@instances
@given(seeds, st.integers(1, 20), inputs, st.sampled_from([*OUTPUTS, torch.exp]))
def test_the_hessian_of_the_output_has_two_terms_and_its_norm_is_within_one_of_the_other(seed, m, x, phi):
    f, w = scalar(m, seed, x)
    g, h, tilde = torch.func.grad(f)(w), torch.func.hessian(f)(w), torch.func.hessian(lambda w: phi(f(w)))(w)
    first, second = slopes(phi, f(w).item())
    expected = second * torch.outer(g, g) + first * h
    assert torch.allclose(tilde, expected, atol=1e-10 * (1 + norm(expected)))
    bent = abs(second) * (g @ g).item()
    assert abs(norm(tilde) - bent) <= abs(first) * norm(h) * SLACK + TINY * (1 + bent)
    g, h = exact([1.0, 1.0]), exact([[0.0, 1.0], [1.0, 0.0]])  # f = w_1 w_2 attains both sides
    assert norm(3 * torch.outer(g, g) + h) == pytest.approx(7) and norm(3 * torch.outer(g, g) - h) == pytest.approx(5)


@pytest.mark.claim("Liu Section 4, lazy training", verdict="holds")
@instances
@given(seeds, st.sampled_from([0.5, 1.0, 2.0]))
def test_the_same_change_of_weights_leaves_one_kernel_and_moves_the_other(seed, x):
    f, w = scalar(20_000, seed, x)
    g = torch.func.grad(f)(w)
    end = w + 3 * g / g.norm()  # each weight by O(1/sqrt m)
    assert (end - w).abs().max() < 0.15
    changes = []
    for function in (f, lambda w: torch.exp(f(w) / 2)):
        before, after = (torch.func.grad(function)(p).square().sum() for p in (w, end))
        changes.append((abs(after - before) / before).item())
    assert changes[0] < 0.25 and changes[1] > 5


# ---- Section 6, appendix B and Table 1 ------------------------------------------------------------------------------


@pytest.mark.claim("Liu Section 6, swish as an instance", verdict="fails")
def test_the_slope_of_swish_has_a_zero():
    before, zero, after = (slopes(swish, -12.78464542761074 + z)[0] for z in (-5, 0, 5))
    assert before < 0 < after and abs(zero) < 1e-12


@pytest.mark.claim("A softmax that is sure", verdict="holds")
@instances
@given(seeds, st.integers(1, 5), st.integers(2, 4), st.sampled_from([0.1, 1.0, 10.0, 40.0]))
def test_the_kernel_of_a_softmax_vanishes_with_the_loss(seed, n, k, size):
    f, labels = size * gaussian(seed, n, k), torch.randint(k, (n,), generator=torch.Generator().manual_seed(seed))
    y, a = torch.nn.functional.one_hot(labels, k).double(), gaussian(seed + 1, n * k, n * k)
    kernel, doubt = a @ a.mT, (1 - (Softmax().outputs(f) * y).sum(-1)).max().item()
    tilde = output_kernel(kernel, Softmax().slopes(f))
    for measure in (norm, torch.linalg.matrix_norm):
        assert measure(tilde) <= 4 * doubt**2 * measure(kernel) * SLACK + 1e-14
    assert doubt <= n * Softmax().loss(f, y) * SLACK + 1e-15


@pytest.mark.claim("Liu Appendix B, training of the bottleneck", verdict="fails")
@instances
@given(seeds, st.integers(1, 5), st.integers(1, 5), st.floats(0, 20), st.floats(-3, 3))
def test_without_biases_the_network_is_homogeneous_in_its_input(seed, m, narrow_width, scale, x):
    network = bottleneck(m, narrow_width, inputs=1, seeds=[seed])
    assert torch.allclose(network(exact([[scale * x]])), scale * network(exact([[x]])), rtol=1e-10, atol=1e-10)


def wide(m, seed):
    return shallow(m, 1, activation=torch.tanh, seeds=[seed])


def narrow(m, seed):
    return bottleneck(m, 1, 1, activation=torch.tanh, seeds=[seed])


@pytest.mark.claim("Liu Table 1, linear output layer", verdict="holds")
@pytest.mark.claim("Liu Table 1, non-linear output layer", verdict="fails")
@pytest.mark.claim("Liu Table 1, bottleneck", verdict="holds")
@pytest.mark.parametrize(
    ("build", "phi", "runs", "low", "high"),
    [(wide, identity, 8, -0.55, -0.3), (wide, torch.exp, 12, -0.25, 0.25), (narrow, identity, 16, -0.2, 0.2)],
)
def test_exponents_of_the_width_of_the_hessian_and_of_the_kernel(build, phi, runs, low, high):
    x, norms, kernels = exact([[1.0, 1.0]]), [], []
    for m in (64, 4096):
        networks = [build(m, seed) for seed in range(runs)]
        ends = [hessian_ends(net, x, output=lambda y: phi(y[0]), tolerance=1e-3) for net in networks]
        norms.append(sum(end.norm for end in ends) / runs)
        kernels.append(sum(net.kernel(x).item() for net in networks) / runs)
    assert low < math.log(norms[1] / norms[0]) / math.log(64) < high
    assert abs(math.log(kernels[1] / kernels[0])) / math.log(64) < (0.2 if build is narrow else 0.1)
    assert build is wide or norms[1] > 0.3
