"""The numbers in the text of "Adding the identity" and its further experiments are those of their own tables."""

import math

import numpy as np
import pytest
import torch
from gnbook import results
from gnbook.adding_the_identity.bounds import hard_bound, riedi_lemma_29, riedi_theorem_22
from gnbook.shared.skips import skip_bounds

from tests.pages.pages import prose, table, words_of


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


def test_branches_that_start_at_zero(text, further):
    rows = [
        line.replace(",", "").split() for line in table("adding-the-identity-further", "four blocks that start at zero")
    ]
    found = {(name, int(step)): [float(word) for word in words] for name, step, *words in rows}
    assert all(s[1:4] == [0, 0, 1] for (_, step), s in found.items() if step == 0)
    loss, _, largest, *_ = found["SGD", 1000]
    assert f"the loss is 10,000 times smaller, and $s_1$ is at most {largest:.2f} in every branch and image." in further
    assert 8e3 < found["SGD", 0][0] / loss < 2e4
    assert max(largest for (name, _), (_, _, largest, *_) in found.items() if name == "SGD") < 1
    largest = found["Adam", 100][2]
    assert f"it is at most {largest:.2f} after a hundred steps. After 300 its median is above one." in further
    assert found["Adam", 100][2] < 1 < found["Adam", 300][1] and found["Adam", 1000][3] < 3
    said = "{} in place of {} with SGD and {} in place of {} with Adam."
    kappas = [found[name, 1000][i] for name in ("SGD", "Adam") for i in (5, 3)]
    assert said.format(*kappas) in further
    assert (
        "in the table about half with SGD, and nearly the same with Adam. By then all losses are about 0.0001."
        in further
    )
    ends = [found[name, 1000][i] for name in ("SGD", "Adam") for i in (0, 4)]
    assert 5e-5 < min(ends) and max(ends) < 2e-4
    zero, drawn = found["SGD", 100][0], found["SGD", 100][4]
    assert f"the start at zero is ahead, with a loss of {zero} against {drawn}." in further and zero < drawn
    assert 0.4 < found["SGD", 1000][4] / found["SGD", 1000][0] < 0.65
    assert 0.9 < found["Adam", 1000][4] / found["Adam", 1000][0] < 1
    said = "$s_1$ stays below one for all of 1,000 steps of SGD, and for the first hundred of Adam."
    assert said in text and "After 300 steps of Adam its median is above one" in text
    assert "whose weights are small, $\\kappa(M)$ stays below four too." in text and max(kappas) < 4
    assert "There the start at zero gave no lower loss in the end." in text
    assert all(found[name, 1000][4] <= found[name, 1000][0] for name in ("SGD", "Adam"))


@pytest.fixture(scope="module")
def fastest():
    """Of each network, optimiser and seed the run of the kept table that is first at a loss of a tenth."""
    found = {}
    for run in results.kept("adding-the-identity-further"):
        steps = math.inf if run["tenth"] is None else run["tenth"]
        key = run["network"], run["optimizer"], run["seed"]
        if key not in found or steps < found[key][0]:
            found[key] = steps, run["rate"], run["correct"]
    assert len(found) == 10 * 2 * 3
    return found


@pytest.fixture(scope="module")
def medians(fastest):
    """Steps, rate and images told right, medians of three seeds, for a network by SGD and by Adam."""
    return lambda name, what=0: [
        np.median([fastest[name, method, seed][what] for seed in range(3)]) for method in ("SGD", "Adam")
    ]


def test_strong_branches_take_twice_the_steps(text, fastest, medians):
    (sgd, adam), (small_sgd, small_adam) = medians("zero"), medians("a quarter")
    said = f"By SGD a start at zero takes {sgd:.0f} steps and a quarter {small_sgd:.0f}, by Adam {adam:.0f} and"
    assert f"{said} {small_adam:.0f} (medians of three seeds)." in text
    one, kept = medians("one"), medians("one, size kept")
    assert f"take more than twice as many as a start at zero**: {one[0]:.0f} by SGD and {one[1]:.0f} by Adam." in text
    assert "took more than twice the steps of branches that start at zero." in text
    assert "took more than twice the steps of those that start at zero." in text
    said = f"at a quarter it did by SGD, and by Adam it took {small_adam:.0f} in place of {one[1]:.0f}."
    assert said in text and one[0] > 2 * small_sgd
    assert all(2 < strong / weak < 2.5 for of in (one, kept) for strong, weak in zip(of, (sgd, adam), strict=True))
    right, at_zero, of_kept = (
        [100 * share for share in medians(name, 2)] for name in ("one", "zero", "one, size kept")
    )
    said = "They also tell only {:.0f} and {:.0f} % of 500 images held out right, where a start at zero tells"
    assert f"{said.format(*right)} {at_zero[0]:.0f} and {at_zero[1]:.0f} %." in text
    said = (
        f"Then it is {of_kept[0]:.0f} and {of_kept[1]:.0f} % of the images, but the steps are still {kept[0]:.0f} and"
    )
    assert f"{said} {kept[1]:.0f}." in text
    assert all(fastest["no skip", "SGD", seed][0] == math.inf for seed in range(3))
    assert sorted(fastest["no skip", "Adam", seed][0] for seed in range(3)) == [370, 400, math.inf]
    assert "no run of SGD gets there, and two of Adam do, after 370 and 400 steps." in text
    ratio, of_adam = (at_zero / at_one for at_zero, at_one in zip(medians("zero", 1), medians("one", 1), strict=True))
    assert "SGD needed a rate some 300 times smaller than from zero, and Adam one 3 times smaller." in text
    assert 250 < ratio < 350 and of_adam == pytest.approx(3, abs=0.4)


def test_with_normalisation_the_start_makes_no_difference(text, further, medians):
    names = ["zero, normalised", "a quarter, normalised", "one, normalised"]
    assert {tuple(medians(name)) for name in names} == {(75, 70)}
    assert "All three take 75 steps by SGD and 70 by Adam." in text
    runs = [run for run in results.kept("adding-the-identity-further") if run["network"] == names[-1]]
    first, last = (np.median([run[end] for run in runs]) for end in ("first", "last"))
    assert f"from a start of one, $\\kappa(M)$ is {first:.0f} in the first block and {last:.1f} in the last." in text
    lines = dict(
        line.rsplit(maxsplit=4)[:2] for line in table("adding-the-identity-further", "steps to a loss of a tenth at")
    )
    slow = [lines[names[0]], lines[names[-1]]]
    assert "by SGD at 0.003, it takes {} in place of {}.".format(*slow) in text
    assert "the start at zero then takes fewer steps than a start of one:" in further


def test_squeezing_alone_costs_steps(text, medians):
    plain, squeezed, hard, kept = (
        medians(name) for name in ("zero", "zero, squeezing skip", "zero, hard squeezing skip", "one, size kept")
    )
    said = "With SGD the steps grow from {:.0f} to {:.0f} and {:.0f}, with Adam from {:.0f} to {:.0f} and {:.0f}."
    assert said.format(*(of[i] for i in range(2) for of in (plain, squeezed, hard))) in text
    assert squeezed == [110, 110] and "made 110 steps of 60 or 80." in text and sorted(plain) == [60, 80]
    shares = [(hard[i] - plain[i]) / (kept[i] - plain[i]) for i in range(2)]
    assert (
        "it makes up nearly half of what strong branches of kept size cost with SGD, and three quarters with Adam"
        in text
    )
    assert 0.4 < shares[0] < 0.5 and 0.72 < shares[1] < 0.8
    chains = [run["chain"] for run in results.kept("adding-the-identity-further") if run["network"] == "one, size kept"]
    assert 3e11 < np.median(chains) < 3e12 and "Strong branches have $10^{12}$ too." in text


def test_a_thousand_layers(text):
    lines = {words[0]: words[1:] for words in words_of("adding-the-identity", "1,000 layers of 15 units")}
    generator = torch.Generator().manual_seed(1)
    layers = 0.3 * torch.randn(1000, 15, 15, generator=generator, dtype=torch.float64)
    skipped = layers + 0.6 * torch.eye(15, dtype=torch.float64)
    worse = (torch.linalg.cond(skipped) > torch.linalg.cond(layers)).double().mean().item()
    assert float(lines["0.6"][1]) == pytest.approx(100 * worse, abs=1)
    assert f"one of half their typical strength makes $\\kappa$ larger in {lines['0.6'][1]} %." in text
    assert f"a typical vector by $0.3 \\sqrt{{15}} = {0.3 * math.sqrt(15):.2f}$." in text
    medians = [float(lines[rho][0]) for rho in ("0.1", "0.3", "0.6", "1", "1.5")]
    assert "Up to half of that the median of $\\kappa(M)$ hardly moves, and only beyond does it fall:" in text
    assert max(medians[:3]) < 1.1 * min(medians[:3]) and medians[3] < 0.75 * medians[2] and medians[4] < 10
    assert all(abs((1 + s) / (1 - s) - bound) < 1e-9 for s, bound in ((0.5, 3), (0.9, 19)))
    assert "3 for $s_1 = 1/2$, but 19 for 0.9." in text


def test_exercises_two_and_three(text):
    left, _, right = torch.linalg.svd(_large())
    assert ((left * right.mT).sum(0) < 0).sum() == 9 and "Nine, as before:" in text
    assert "$\\operatorname{diag}(-1, 0)$ has $|\\rho - 1| + |\\rho| = 1$ for all" in text
    for rho in (0.0, 0.3, 0.8, 1.0):
        matrix = torch.diag(torch.tensor([rho - 1, rho], dtype=torch.float64))
        assert torch.linalg.svdvals(matrix).sum().item() == pytest.approx(1)


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
