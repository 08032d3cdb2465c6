"""The numbers in the text of "Adding the identity" and its further experiments are those of their own tables."""

import math

import pytest
import torch

from gnlib.chapters.adding_the_identity.bounds import hard_bound, riedi_lemma_29, riedi_theorem_22
from gnlib.chapters.shared.skips import skip_bounds
from tests.book.pages import prose, table


@pytest.fixture(scope="module")
def text():
    return prose("notebooks/adding-the-identity")


@pytest.fixture(scope="module")
def further():
    return prose("notebooks/adding-the-identity-further")


def _large():
    """Return the matrix of the first figure that has large weights."""
    return 0.3 * torch.randn(15, 15, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture(scope="module")
def singular_values():
    """Of the matrix of the first figure, for 2,001 weights of the skip."""
    weights = torch.linspace(0, 1, 2001, dtype=torch.float64)
    return weights, torch.linalg.svdvals(_large() + weights[:, None, None] * torch.eye(15, dtype=torch.float64))


def test_the_two_lowest_curves_do_not_cross(further, singular_values):
    weights, values = singular_values
    gap, at = (values[:, -2] - values[:, -1]).min(0)
    assert f"seem to cross near $\\rho = {weights[at]:.1f}$: they come within {gap:.3f} of each other" in further
    assert gap > 0


def test_the_spikes_of_the_layer_of_small_weights(further):
    assert "Blue is left out on the left, for it has nine spikes there." in further
    matrix = torch.randn(100, 100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = torch.linalg.eigvals(matrix) / (2 * math.sqrt(800))
    assert ((values.imag == 0) & (values.real < 0) & (values.real > -0.6)).sum() == 9


def test_two_of_the_fifteen_are_convex(text, further, singular_values):
    counts = dict(line.rsplit(maxsplit=1) for line in table("adding-the-identity-further", "of the 15"))
    assert "here the second is too" in further and "Here two of the fifteen are." in text
    convex = (singular_values[1].diff(dim=0).diff(dim=0) > -1e-9).all(0)
    assert convex.nonzero().flatten().tolist() == [0, 1] and counts["are not convex"] == "13"


def test_a_skip_of_one_around_large_weights(text, further, singular_values):
    weights, values = singular_values
    kappas, (weaker,) = values[:, 0] / values[:, -1], (weights == 0.6).nonzero().flatten()
    said = f"Yet $\\kappa(M)$ is {kappas[-1]:.0f} there, where it is {kappas[weaker]:.0f} at $\\rho = 0.6$"
    assert said in text and (values[-1] > values[0]).all()
    small = torch.randn(100, 100, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / (
        2 * math.sqrt(800)
    )
    at_one = torch.linalg.cond(small + torch.eye(100, dtype=torch.float64))
    least = torch.linalg.eigvalsh((matrix := _large()) + matrix.mT)[0]
    assert "At $\\rho = 1$ the lower bound on the smallest value is zero." in further
    assert torch.linalg.svdvals(matrix)[-1] ** 2 + least + 1 < 0
    assert f"(blue, an eighth of Kaiming's) it is {at_one:.1f} at \u03c1 = 1, around large ones" in further
    assert f"(orange, nearly Kaiming's) {kappas[-1]:.0f}." in further
    zero = weights[values[:, -1].argmin()]
    assert f"Without a skip κ(M) is {kappas[0]:.0f}." in text
    assert f"A weak skip makes it singular at \u03c1 = {zero:.2f}, a skip of one gives {kappas[-1]:.0f}." in text
    assert 0.75 < 0.3 / math.sqrt(2 / 15) < 1


def test_when_all_singular_values_are_larger(text, singular_values):
    rows = [line.split() for line in table("adding-the-identity", "singular values of the layer of 15 units")]
    found = {row[0]: [float(word) for word in row[1:]] for row in rows}
    matrix = _large()
    enough = -torch.linalg.eigvalsh(matrix + matrix.mT)[0].item()
    assert "all singular values are larger than without the skip once $\\rho > -\\underline\\tau$" in text
    assert all(of[2] == 15 for rho, of in found.items() if float(rho) > enough)
    assert "Here all of them are larger at $\\rho = 1$ already." in text and found["1"][2] == 15
    assert found["0.03"][2] < 15 and found["0.6"][2] < 15


def test_the_price_of_small_weights(further):
    assert (
        f"at 100 units and $cn = 1/2$ a weight may be {0.5 / 100:.3f}, where Kaiming for ReLUs draws about 0.14."
        in further
    )
    kaiming = torch.nn.init.kaiming_normal_(torch.empty(100, 100), nonlinearity="relu", generator=torch.Generator())
    assert 0.135 < kaiming.std() < 0.145


def test_branches_that_start_at_zero(text):
    rows = [line.replace(",", "").split() for line in table("adding-the-identity", "four blocks that start at zero")]
    found = {(name, int(step)): [float(word) for word in words] for name, step, *words in rows}
    assert all(s[1:4] == [0, 0, 1] for (_, step), s in found.items() if step == 0)
    loss, _, largest, *_ = found["SGD", 1000]
    assert f"the loss is 10,000 times smaller, and $s_1$ is at most {largest:.2f} in every branch and image." in text
    assert 8e3 < found["SGD", 0][0] / loss < 2e4
    assert max(largest for (name, _), (_, _, largest, *_) in found.items() if name == "SGD") < 1
    largest = found["Adam", 100][2]
    assert f"it is at most {largest:.2f} after a hundred steps. After 300 its median is above one." in text
    assert found["Adam", 100][2] < 1 < found["Adam", 300][1] and found["Adam", 1000][3] < 3
    said = "{} in place of {} with SGD and {} in place of {} with Adam."
    kappas = [found[name, 1000][i] for name in ("SGD", "Adam") for i in (5, 3)]
    assert said.format(*kappas) in text
    assert (
        "in the table about half with SGD, and nearly the same with Adam. By then all losses are about 0.0001." in text
    )
    ends = [found[name, 1000][i] for name in ("SGD", "Adam") for i in (0, 4)]
    assert 5e-5 < min(ends) and max(ends) < 2e-4
    zero, drawn = found["SGD", 100][0], found["SGD", 100][4]
    assert f"the start at zero is ahead, with a loss of {zero} against {drawn}." in text and zero < drawn
    assert 0.4 < found["SGD", 1000][4] / found["SGD", 1000][0] < 0.65
    assert 0.9 < found["Adam", 1000][4] / found["Adam", 1000][0] < 1


def test_an_activation_before_a_well_conditioned_layer(further):
    kappas = {
        line.split()[0]: line.split()[1] for line in table("adding-the-identity-further", "condition number of a layer")
    }
    assert f"(#the-four-bounds-of-the-paper) with $r = 2$, whose $\\kappa(M)$ is {kappas['2']}:" in further
    found = {
        line.split()[0]: line.split()[-1] for line in table("adding-the-identity-further", "singular values of M D")
    }
    assert found["1.0"] == found["-1.0"] == kappas["2"] and float(found["0.0"]) <= float(kappas["2"])


def test_which_bound_is_the_sharpest(further):
    rows = [
        list(map(float, line.split()))[1:] for line in table("adding-the-identity-further", "the same layers: the four")
    ]
    assert "In the next table the bounds by $\\tau$ are the sharper ones where they are finite." in further
    finite = [row for row in rows if row[2] < math.inf]
    assert 0 < len(finite) < len(rows)
    assert all(tau < norm and simple_tau < simple_norm for norm, simple_norm, tau, simple_tau in finite)
    matrix = torch.diag(torch.tensor([-0.4, 0.1], dtype=torch.float64))
    by_norm, simple, by_tau, simple_tau = riedi_theorem_22(matrix)
    kappa = torch.linalg.cond(matrix + torch.eye(2, dtype=torch.float64))
    assert f"they say {by_tau:.2f} and {simple_tau:.2f}, those by $s_1$ say {by_norm:.2f} and {simple:.2f}" in further
    assert f"and $\\kappa(M)$ is {kappa:.2f}." in further


@pytest.mark.parametrize("symmetric", [False, True])
def test_our_bound_is_never_worse_than_any_of_the_four(further, symmetric):
    assert "So it is never worse than any of the four" in further
    generator, finite = torch.Generator().manual_seed(0), 0
    for size in [2, 3, 10] * 100:
        matrix = torch.randn(size, size, generator=generator, dtype=torch.float64) / (4 * size**0.5)
        matrix = (matrix + matrix.mT) / 2 if symmetric else matrix
        printed, ours = min(riedi_theorem_22(matrix)), skip_bounds(matrix, 1.0)
        finite += printed < math.inf
        assert printed == math.inf or ours.upper <= printed * ours.lower * (1 + 1e-12)
    assert finite > 200


def test_the_bound_with_an_activation_is_the_better_one_without_too(further):
    simple = riedi_lemma_29(0.8 / 8, 8)
    ours = hard_bound(0.8 / 8, 8)
    assert f"at $c n = 0.8$ it says {ours:.1f}, and not {simple.upper / simple.lower:.1f}." in further
