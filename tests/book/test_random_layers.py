"""The numbers in the text of "Random layers" are those of its own tables."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from gnlib.chapters.random_layers import bounds, matrices
from tests.book.pages import prose, table, texts


@pytest.fixture(scope="module")
def text():
    return prose("notebooks/random-layers")


def prose_of_the_source():
    """The source with the metadata of its cells, where captions and alternative texts are, in one line."""
    return " ".join(Path("notebooks/random-layers.md").read_text().split())


def lines_of(caption):
    """Return the numbers of the lines under the head of the table with this caption, by their first column."""
    lines = [line.replace(",", "").replace("inf", "Infinity").split() for line in table("random-layers", caption)]
    return {line[0]: [float(word.rstrip("%")) for word in line[1:] if word != "-"] for line in lines}


def test_the_most_squeezed_direction(text):
    ratio, *_ = lines_of("Gaussian layers, r = 2, absolute value")["100"]
    assert "In a layer of a hundred units" in text and f"some {100 * ratio:.0f} times weaker" in text


def test_steps_of_descent(text):
    few_without, few_with, many_without, many_with = lines_of("steps of gradient descent")["100"]
    assert (
        f"At width 100 a thousandth of the loss is left after {few_without:.0f} steps without the skip and after "
        f"{few_with:.0f} with it, a millionth after {many_without:,.0f} and after {many_with:.0f}:" in text
    )
    quoted = f"{many_with:.0f} steps in place of {many_without:,.0f} to a millionth of the loss"
    assert quoted in prose("notebooks/adding-the-identity")


def test_bounds_are_within_ten_per_cent(text):
    of = lines_of("bounds over true values")
    means = [100 * (numbers[2] - 1) for n, numbers in of.items() if n != "limit"]
    low, high = f"{min(means):.0f}", f"{max(means):.0f}"
    assert f"a bound from three numbers of the layer is {low} to {high} % above the truth, in the mean." in text
    assert f"the bound is {low} to {high} % above $\\kappa$ in the mean." in text
    assert max(numbers[2] for numbers in of.values()) < 1.1
    limit = bounds.riedi_theorem_38(2).symmetric
    assert f"for $r = 2$ it is {limit:.2f}. We call it the *simple bound*" in text
    assert f"the *bound to use* there has the limit {bounds.riedi_theorem_38(2).sharper:.2f}." in text
    lines = [line.split() for line in table("random-layers", "means of κ(W + I)")]
    means = {n: (float(mean), float(share.rstrip("%"))) for n, mean, share, *_ in lines if n.isdigit()}
    assert "is a tenth above the mean at width 100 and a quarter at width 5. There one layer in 200 is beyond" in text
    assert limit / means["100"][0] == pytest.approx(1.1, abs=0.01) and means["5"][1] == 0.5
    assert limit / means["5"][0] == pytest.approx(1.25, abs=0.01)
    assert f"where the truth is known exactly, it is {100 * (of['limit'][2] - 1):.1f} %." in text
    ratios = {r: bounds.riedi_theorem_38(r).symmetric / bounds.skip_condition_limit(r) for r in (1.5, 1.2, 1.1, 2, 3)}
    loose = [f"{100 * (ratios[r] - 1):.0f} % at" for r in (1.5, 1.2, 1.1)]
    assert "by {} $r = 1.5$, {} 1.2 and {} 1.1, and at $r = 1$ it ends".format(*loose) in text
    assert ratios[3] < ratios[2] < 1.1 and not math.isfinite(bounds.riedi_theorem_38(1).symmetric)


def test_what_the_skip_is_worth(text):
    exact, bound = bounds.skip_condition_limit(2), bounds.riedi_theorem_38(2).symmetric
    without, *_, at_kaiming = lines_of("Gaussian layers, r = 2, absolute value")["100"]
    assert "at width 100 the skip is worth a factor of about 200" in text and 190 < 100 * without / exact < 225
    gains = [numbers[-1] for n, numbers in lines_of("Gaussian layers, r = 2, absolute value").items() if n != "limit"]
    assert f"the same skip gains a factor of {min(gains):.1f} to {max(gains):.1f}." in text
    assert f"it is worth a factor of {min(gains):.1f} to {max(gains):.1f}." in text and at_kaiming in gains
    said = f"it makes the median of $\\kappa$ {min(gains):.1f} to {max(gains):.1f} times smaller, at five widths."
    assert f"with all units on {said}" in text
    assert f"at $r = 2$ to {exact:.2f}, and a bound from three numbers of the layer to {bound:.2f}." in text


def test_the_worst_pattern_is_nearly_the_one_with_all_units_on(text):
    assert "The worst pattern of units that we find is nearly the one with all units on." in text
    found = lines_of("kappa of one Gaussian layer")
    assert [float(r) for r in found][:4] == [0.25, 0.35, 0.61, 0.75]
    for r, (active, at_random, worst, bound) in found.items():
        assert at_random < active <= worst <= bound and (worst < 1.1 * active or float(r) < 0.75)
    assert "From $r = 0.75$ on the region in which all units are on is nearly the worst that the search finds" in text
    active, _, worst, bound = found["0.25"]
    said = (
        f"with all units on this layer has $\\kappa = {active:.0f}$, and the search finds a region of more than 7,000."
    )
    assert said in text and worst > 7000 and bound == math.inf == found["0.35"][-1] and found["0.35"][2] > 300
    assert "the crosses are at 147, 21 and 5, the regions at random at 4.6, 3.4 and 2.1" in prose_of_the_source()
    assert [round(found[r][0]) for r in ("0.25", "0.35", "0.61")] == [147, 21, 5]
    assert [round(found[r][1], 1) for r in ("0.25", "0.35", "0.61")] == [4.6, 3.4, 2.1]
    assert "are at most a tenth above the region where all units are on" in text
    assert "lies above, within a tenth from r = 2 on" in text
    assert all(of[-1] < 1.1 * of[-2] for r, of in lines_of("kappa of one Gaussian layer").items() if float(r) >= 2)


@pytest.fixture(scope="module")
def blocks():
    """Medians in each state: κ with the skip and without, both after the last ReLU, and the norm of the branch."""
    found = {}
    for line in table("random-layers", "medians over the images"):
        words = line.rsplit(maxsplit=14)
        norm, _, _, skip, _, none, _, skip_relu, none_relu, _ = map(float, (word.rstrip("%") for word in words[-10:]))
        found.setdefault(words[0].split()[0], []).append((skip, none, skip_relu, none_relu, norm))
    return {state: np.array(rows).T for state, rows in found.items()}


@pytest.fixture(scope="module")
def shares():
    """Of blocks and images, in each state: bounds in the region and everywhere, promised, improved, after the ReLU."""
    found = {}
    for line in table("random-layers", "shares of blocks and images"):
        words = line.rsplit(maxsplit=6)
        found[words[0].split()[0]] = [float(word.rstrip("%")) for word in words[1:]]
    return found


def test_where_bounds_are_left(text, shares, blocks):
    assert "Without such a start no bound is left, but the skip still helps everywhere." in text
    assert shares["trained"][:2] == shares["with"][:2] == [0, 0]
    assert shares["drawn"][:2] == shares["started"][:2] == [100, 100]
    norms = blocks["started"][-1]
    assert f"its branches have norms of {norms.min():.2f} to {norms.max():.2f} in the median" in text
    assert len(norms) == 7
    drawn, normalised, trained = (blocks[state][-1] for state in ("drawn", "with", "trained"))
    kappa = blocks["drawn"][0]
    assert f"all bounds hold, and $\\kappa$ is {kappa.min():.1f} to {kappa.max():.1f}." in text
    said = "the norms of the branches {:.1f} to {:.1f} where they were {:.1f} to {:.1f}."
    assert said.format(normalised.min(), normalised.max(), drawn.min(), drawn.max()) in text
    assert f"Training leaves them at {trained.min():.1f} to {trained.max():.1f}, which is not small enough." in text
    assert (
        "the norms were below 0.4 in the median after the training, where they are two or more from torch's start"
        in text
    )
    assert norms.max() < 0.4 and trained.min() > 2


def test_how_long_the_small_network_is_trained(text):
    assert "in one small ResNet20 after 150 steps of SGD with momentum (squared error, one seed)." in text
    source = Path("notebooks/random-layers.md").read_text()
    names = "images", "epochs", "batch_size"
    images, epochs, batch = (int(re.search(rf"\b{name}\s?=\s?(\d+)", source)[1]) for name in names)
    assert images // batch * epochs == 150 and images % batch == 0
    assert "torch.optim.SGD, lr=0.05, momentum=0.9" in source and "loss=torch.nn.functional.mse_loss" in source


def test_where_the_skip_helps(text, shares):
    assert all(improves == 100 and broken == 0 for *_, improves, _, broken in shares.values())
    drawn, trained, from_zero = (shares[state][4] for state in ("drawn", "trained", "started"))
    quoted = f"in {drawn:.0f} % of blocks and images as drawn, a coin toss, in {trained:.0f} % of the trained network"
    assert f"{quoted} and in {from_zero:.0f} % from zero." in text
    assert "After it nothing is promised, and the start at zero is no better." in text and from_zero < trained


def test_where_the_skip_helps_by_medians(text, blocks):
    skip, none, skip_relu, none_relu, _ = blocks["trained"]
    assert "In the trained network the skip helps in six of seven blocks" in text
    assert (skip < none).all() and (skip_relu < none_relu).tolist().count(True) == 6 and len(skip) == 7
    *_, from_zero, none_from_zero, _ = blocks["started"]
    assert "Blue is lower in six of seven blocks on the left and in five on the right" in text
    assert (from_zero < none_from_zero).tolist().count(True) == 5
    gains, before = (none_relu / skip_relu)[skip_relu < none_relu], none / skip
    assert f"by factors of {gains.min():.1f} to {gains.max():.0f}, where before the last ReLU they are" in text
    assert f"where before the last ReLU they are {before.min():.0f} to 100." in text and 95 < before.max() < 105
    *_, skip, none, _ = blocks["drawn"]
    assert "In the network as drawn it is worse with the skip in blocks 2, 3 and 5." in text
    assert (1 + np.flatnonzero(skip > none)).tolist() == [2, 3, 5]
    assert "and of four of seven as drawn" in text


def test_how_much_the_largest_eigenvalue_varies(text):
    at = np.linspace(-9, 7, 2000)
    density = matrices.tracy_widom_pdf(at)
    mean = np.trapezoid(at * density, at)
    deviation = math.sqrt(2 * np.trapezoid((at - mean) ** 2 * density, at))  # of the law stretched by the root of 2
    assert "varies by about twice $n^{-1/6}$, a share of less than $n^{-2/3}$ of itself" in text
    assert round(deviation) == 2 and deviation / math.sqrt(8) < 1


def test_where_the_bound_of_the_paper_begins(text):
    table_39 = [line.split() for line in table("random-layers", "n = 100, theta = 4.5")]
    first, last = table_39[0][2], table_39[-1][2]
    assert f"at width 100, where it begins at {first} and at {last}." in text
    one, whole = (
        2 + 2 * (trained + residual - trained * residual / 30) + 4 for trained, residual in ((1, 0), (29, 30))
    )
    assert f"at this size of 30 it begins at $r = {one:.0f}$ (one unit off) and at $r = {whole:.0f}$ (all off)." in text


def test_the_loss_from_zero(text):
    (shown,) = (found for found in texts("random-layers") if found.startswith("CIFAR-10, 100 images"))
    usual, from_zero = (line.split(" after,")[0].split()[-1] for line in shown.splitlines()[1:])
    starts = [float(line.split(" before")[0].split()[-1]) for line in shown.splitlines()[1:]]
    said = f"Its loss is lower, too: {from_zero} and not {usual} (one seed), but it began at half of the other."
    assert said in text and 0.45 < starts[1] / starts[0] < 0.55


def test_the_scale_of_the_weights(text):
    norm = {r: 1 / (math.sqrt(2) * r) for r in (1 / 4, 1 / math.sqrt(8), 1 / 2, 1 / math.sqrt(2), 2)}
    assert f"At $r = 2$ it is {norm[2]:.2f}, beside the 1 of the identity" in text
    assert f"| gain 1, as in the earlier chapters | $1 / n$ | 2 | {1 / math.sqrt(8):.2f} |" in text
    assert norm[1 / math.sqrt(8)] == pytest.approx(2) and norm[1 / math.sqrt(2)] == pytest.approx(1)
    kaiming = f"| Kaiming for ReLUs (gain $\\sqrt 2$) | $2 / n$ | {norm[1 / 4]:.1f} | $1/4$ |"
    assert kaiming in text and 1 / (8 * (1 / 4) ** 2) == 2
    assert f"makes the layer singular | $1 / (2 n)$ | {norm[1 / 2]:.1f} | $1/2$ |" in text
    assert 1 / (8 * (1 / 2) ** 2) == 1 / 2
    assert f"is below one | $1 / (4 n)$ | 1 | {1 / math.sqrt(2):.2f} |" in text
    said = f"(in variance one 64th): the simple bound is within ten per cent | $1 / (32 n)$ | {norm[2]:.2f} | 2 |"
    assert said in text and 1 / (8 * 2**2) == 1 / 32 == 2 / 64


def test_at_kaimings_size_nothing_can_be_promised(text):
    (found,) = (shown for shown in texts("random-layers") if "worst found" in shown)
    (row,) = (line.split() for line in found.splitlines() if line.split()[:1] == ["0.25"])
    at_random, worst = (float(cell.replace(",", "")) for cell in row[2:4])
    assert "In random regions of ReLUs $\\kappa$ is about 5 even then" in text and round(at_random) == 5
    assert "but the worst exceeds 7,000, so nothing can be promised." in text and worst > 7000
