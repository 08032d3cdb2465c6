"""What "The book in ten minutes" says is what its cells print and what the tables of the chapters hold."""

from collections import defaultdict

import numpy as np
import pytest
from bs4 import BeautifulSoup
from gnbook import results
from gnbook.what_predicts_training.correlations import between, within
from gnbook.what_predicts_training.table import arrived, order, those

import gnlib
from tests.pages.pages import outputs, prose, says, table


@pytest.fixture(scope="module")
def text():
    return prose("notebooks/laboratory/ten-minutes")


def means(name, x, of, **where):
    """Mean condition number of a kept table, by a column and the values of another."""
    values = defaultdict(list)
    for row in results.kept(name):
        if all(row[column] == value for column, value in where.items()):
            values[row[of], row[x]].append(row["kappa"])
    return {key: np.mean(found) for key, found in values.items()}


def two_runs():
    """Condition number and steps of both runs at the top, on raw and on centred images."""
    pieces = ["".join(data.get("text/html", "")) for data in outputs("laboratory/ten-minutes")]
    (shown,) = (piece for piece in pieces if "steps to the goal" in piece)
    rows = BeautifulSoup(shown, "html.parser").select("tbody tr")
    return [[int(cell.text.replace(",", "")) for cell in row.select("td")[1:]] for row in rows]


def test_two_runs(text):
    (raw, slow), (centred, fast) = two_runs()
    assert raw > 20 * centred and round(slow / fast) == 14
    said = "by {:.0f} and ... by {:.0f}."
    assert says(text, said, raw / centred, slow / fast)


def test_the_data_multiply(text):
    kappas = means("one-hidden-layer", "depth", "images", figure=19, width=3100)
    ratios = [kappas["raw", depth] / kappas["whitened", depth] for depth in range(2, 11)]
    assert 10**5.5 < min(ratios) < max(ratios) < 10**6.5  # six orders of magnitude
    white, raw = (kappas[name, 10] / kappas[name, 2] for name in ("whitened", "raw"))
    assert says(text, f"of {white:.0f}, ... ones {raw:.1f}")


def test_what_standardising_takes_off_the_data(text):
    images = gnlib.load("cifar10", 1000)[0]
    colours = images.view(1000, 3, -1)  # by channel, as in *One hidden layer*
    standardised = ((colours - colours.mean((0, 2), keepdim=True)) / colours.std((0, 2), keepdim=True)).flatten(1)
    raw, after = (gnlib.condition_number(z @ z.T / len(z)).value for z in (images, standardised))
    assert f"falls {raw / after:.0f}-fold" in text


def test_depth_and_width(text):
    kappas = means("deep-linear", "depth", "line", figure="2a")
    for width in (400, 1600, 3200):
        assert (np.diff([kappas[width, depth] for depth in range(2, 21, 2)]) > 0).all()
    for depth in range(4, 21, 2):
        assert kappas[400, depth] > kappas[1600, depth] > kappas[3200, depth]
    narrow, wide = (kappas[width, 20] / kappas[width, 2] for width in (400, 3200))
    assert says(text, f"grows {narrow:.0f}-fold ... and {wide:.0f}-fold")


def test_a_skip_takes_a_third_off():
    kappas = means("residual", "depth", "skip", width=800)
    shares = [kappas[1, depth] / kappas["no skip", depth] for depth in range(6, 13, 2)]
    assert np.mean(shares) == pytest.approx(2 / 3, abs=0.05)
    assert all(kappas["1 / L", d] == pytest.approx(kappas["no skip", d], rel=0.05) for d in range(2, 13, 2))


def test_what_kappa_ranks(text):
    some = those(results.kept("what-predicts-training"), optimizer="descent", loss="mse", n=50)
    apart, inside = (order(some, names=["kappa"], statistic=how).value("kappa") for how in (between, within))
    assert f"| {apart:.2f} |" in text and f"| {inside:.2f} |" in text
    assert f"{len(some)} networks" in text
    apart, inside = (order(arrived(some), names=["kappa"], statistic=how).value("kappa") for how in (between, within))
    assert f"has {apart:.2f}, and {inside:.2f} within" in text


@pytest.mark.parametrize(("loss", "words"), [("mse", "squared error"), ("cross_entropy", "cross-entropy")])
@pytest.mark.parametrize(("optimizer", "way"), [("descent", "gradient descent"), ("adam", "Adam")])
def test_the_table_of_what_ranks(text, loss, words, optimizer, way):
    some = those(results.kept("what-predicts-training"), optimizer=optimizer, loss=loss, n=50)
    apart = order(some, names=["kappa", "forecast"], statistic=between)
    inside = order(some, names=["kappa", "initial_loss"], statistic=within)
    cells = [*map(apart.value, ("kappa", "forecast")), *map(inside.value, ("kappa", "initial_loss"))]
    assert f"| {words}, {way} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |" in text


def test_what_is_ranked_with_cross_entropy(text):
    some = those(results.kept("what-predicts-training"), optimizer="descent", loss="cross_entropy", n=50)
    inside = order(some, statistic=within)
    best = max(inside.value(name) for name in inside.names)
    assert f"has {best:.2f}, under" in text


def test_what_other_pages_measured_of_training(text):
    of_mlp, of_cnn = (
        float(line.split()[-3]) for line in table("laboratory/quick-start-further", "steps to a cross-entropy of")[:2]
    )
    assert 2 < of_cnn < 3
    assert 8.5 < of_mlp < 10.5  # not the same on every machine
    *_, before, after = table("laboratory/quick-start-further", "condition numbers of these networks")[0].split()
    said = f"by {float(before) / float(after):.0f} and"
    assert said in text
    *_, before, after = table("laboratory/quick-start-further", "condition numbers of these networks")[1].split()
    assert f"κ {float(before) / float(after):.1f}-fold" in text


def test_what_remedies_save_under_adam():
    lines = [line.split() for line in table("laboratory/your-own-network", "steps of Adam to a")]
    *_, nothing = gains = [float(words[-3]) for words in lines]
    assert nothing == 1 and sorted(gains[:-1])[:-1] == [1.1, 1.1, 1.5, 3.2] and round(max(gains)) == 8
    norms = "GroupNorm(1)", "LayerNorm"
    saved = {norm: [float(line[-3]) for line in lines if any(norm in word for word in line)] for norm in norms}
    assert saved == {"GroupNorm(1)": [1.5], "LayerNorm": [1.1, 1.1]}
    (transformer,) = (line for line in lines if line[0].startswith("transformer"))
    assert float(transformer[-2]) < float(transformer[-3]) / 2


NAMES = ("raw", "centred", "standardised")


def test_standardising_and_normalising_a_cnn_as_torch_begins_it(text):
    lines = [
        line.split()
        for line in table("laboratory/batch-normalization-further", "convolutional network, 20 colour images")
    ]
    medians = {tuple(words[:2]): (words[2], words[-4]) for words in lines if words[2][0].isdigit()}  # "low to high"
    found = [medians[name, how] for name, how in (*((name, "nothing") for name in NAMES), ("raw", "BN"))]
    for weights, row in zip(("Kaiming", "torch's default"), zip(*found, strict=True), strict=True):
        assert f"| {weights} | {' | '.join(row)} |" in text
