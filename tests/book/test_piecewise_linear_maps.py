"""The numbers in the text of "Piecewise linear maps" beside its slider are those that the slider shows."""

import numpy as np
import pytest

from tests.book.pages import prose, slider, table


@pytest.fixture(scope="module")
def text():
    return prose("notebooks/piecewise-linear-maps")


@pytest.fixture(scope="module")
def frames():
    """For each position of the slider, which names the number of pieces, its curves."""
    return {
        name: [(np.array(x), np.array(y)) for x, y in curves]
        for name, curves in slider("piecewise-linear-maps").items()
    }


def test_the_pieces_are_as_many_as_the_slider_says_and_fill_the_line(frames):
    for name, ((x, _), _, _) in frames.items():
        assert name.endswith(f", {len(x) // 2} pieces")
        assert x[0] == -2 and x[-1] == 2 and (np.diff(x) >= 0).all() and (x[1:-1:2] == x[2::2]).all()


def test_condition_numbers_of_the_pieces(text, frames):
    kappas = np.concatenate([largest / smallest for (_, largest), (_, smallest), _ in frames.values()])
    assert f"of one piece is {kappas.min():.1f} while that of another is {kappas.max():.0f}." in text


def test_both_singular_values_jump_at_the_mark_and_one_step_stays(text, frames):
    assert "The one at 0.25 is the kink of another unit of the first layer: it stays where it is." in text
    marks = []
    for (x, largest), (_, smallest), (mark, _) in frames.values():
        (at,) = np.flatnonzero(np.abs(x[1:-1:2] - mark[0]) < 1e-4)
        for values in (largest, smallest):
            assert values[2 * at] == values[2 * at + 1] != values[2 * at + 2]
        assert 0.25 in x.round(2)
        marks.append(mark[0])
    assert (np.diff(marks) > 0).all()


@pytest.fixture(scope="module")
def six():
    """κ(Q) of the three layers of each network, for both outputs, with images as they are and less their mean."""
    rows = [line.replace(",", "").split() for line in table("piecewise-linear-maps", "κ(Q) of six networks")]
    kappas = np.array([[float(word) for word in row[-6:]] for row in rows])
    assert [row[1] for row in rows] == ["as", "less"] * 6
    return {
        output: (kappas[::2, some], kappas[1::2, some])
        for output, some in (("linear", [0, 1, 2]), ("leaky", [3, 4, 5]))
    }


def test_the_last_layer_pays_for_its_inputs_alone(text, six):
    found = {}  # of each layer: its condition number, that of its inputs, the bound, and its smallest eigenvalue
    for line in table("piecewise-linear-maps", "40 images of 9 pixels"):
        name, layer, *numbers = line.replace(",", "").replace(" -", " nan").rsplit(maxsplit=5)
        found[name.startswith("less"), layer] = [float(number) for number in numbers]
    (first, inputs, *_), (second, of_second, *_), (kappa, of_last, product, _) = (found[False, i] for i in "123")
    assert kappa == of_last == product
    assert f"so $\\kappa(Q)$ is $\\kappa(z)$, {kappa:.0f}." in text
    assert (
        f"The $\\kappa$ of layer 1 is {(first / kappa) ** 2:.0f} times that of the last layer" in text
        and first > second
    )
    assert f"although its $\\kappa$ is {(second / found[True, '2'][0]) ** 2:.1f} times smaller" in text
    times = []
    for less in (False, True):
        smallest = [found[less, i][3] for i in "123"]
        times += [smallest[2] / max(smallest[:2]), smallest[2] / min(smallest[:2])]
    said = "it is {:.0f} to {:.0f} times larger than in the others, without the mean image {:.0f} to {:.0f} times."
    assert said.format(*times) in text
    (low, high), (least, most) = (sorted(found[less, i][2] / found[less, i][0] for less in (False, True)) for i in "21")
    said = "it is {:.0f} to {:.0f} times too large for layer 2 and {:.0f} to {:.0f} times for layer 1"
    assert said.format(low, high, least, most) in text
    assert f"have far better inputs, {inputs:.0f} and {of_second:.0f}," in text
    assert f"with {first:.0f} and {second:.0f}: they pay" in text
    for less in (False, True):
        assert all(found[less, i][1] < found[less, "3"][1] for i in "12")
        assert all(found[less, i][0] < found[less, "all"][0] for i in "123")
        assert all(found[less, i][3] > found[less, "all"][3] for i in "123")
    assert "In all six the last layer is the best conditioned of the three" in text
    assert all((kappas.argmin(1) == 2).all() for kappas in six["linear"])


def test_how_fast_each_layer_comes_to_its_own_minimum(text):
    rows = [line.replace(",", "").rsplit(maxsplit=6) for line in table("piecewise-linear-maps", "each layer trained")]
    steps = {
        (name.startswith("less"), layer): (int(most), int(all_but)) for name, layer, _, _, most, all_but, _ in rows
    }
    (first, _), (second, _), (last, end) = (steps[False, layer] for layer in "123")
    assert last < first < second and "the layer with the smallest $\\kappa$ arrives first" in text
    of_first = steps[False, "1"][1]
    assert f"its steps to nine tenths are {first / last:.1f} times as many." in text
    said = "layer 1 takes {:.1f} times as many steps as the last layer to all but a hundredth ({:,} and {:,})."
    assert said.format(of_first / end, of_first, end) in text
    assert end == min(steps[False, layer][1] for layer in "123")
    faster = {layer: steps[False, layer][0] / steps[True, layer][0] for layer in "123"}
    said = "layer 1 is {:.0f} times and layer 3 is {:.1f} times as fast as before."
    assert said.format(faster["1"], faster["3"]) in text and faster["2"] < 1
    assert f"Layer 2 takes {steps[True, '2'][0]:,} steps after {second:,}, although" in text
    assert "to all but a hundredth it gains a fifth" in text
    assert steps[True, "2"][1] / steps[False, "2"][1] == pytest.approx(0.8, abs=0.02)
    assert all(steps[True, "1"][i] < steps[True, "3"][i] < steps[True, "2"][i] for i in (0, 1))
    kappas = {(row[0].startswith("less"), row[1]): int(row[3]) for row in rows}
    assert all(int(row[3]) == pytest.approx(int(row[2]) ** 2, rel=0.05) for row in rows)
    assert "the one with the *larger* $\\kappa$ is nearly six times as fast" in text
    assert 5.5 < second / first < 6 and kappas[False, "1"] > kappas[False, "2"]
    assert "of the first two layers the one with the larger $\\kappa$ is the faster" in text
    assert "layer 1 is the fastest here, with a larger $\\kappa$ than the last" in text
    assert kappas[True, "1"] > kappas[True, "3"]
    assert all(kappas[less, layer] > kappas[less, "3"] for less in (False, True) for layer in "12")
    lowest = {(name.startswith("less"), layer): float(loss) for name, layer, *_, loss in rows}
    assert "layer 1 stops early, with the highest loss" in text and lowest[True, "1"] == max(lowest.values())
    assert "(It stops early, at a higher loss than before.)" in text and lowest[True, "1"] > lowest[False, "1"]


def test_the_mean_image_is_what_slows_layers_down(text, six):
    before, after = six["linear"]
    assert "17 of the 18 layers are better conditioned" in text and "improves $\\kappa$ in 17 of 18 layers here" in text
    assert (after < before).sum() == 17
    ((network, layer),) = np.argwhere(after > before)
    assert f"from {before[network, layer]:.0f} to {after[network, layer]:.0f}. Only" in text and layer == 2
    gains = before.max(1) / after.max(1)
    said = "$\\kappa(Q)$ falls by a factor of {:.0f} to {:.0f}, and so $\\kappa$ by 9 or more."
    assert said.format(gains.min(), gains.max()) in text
    assert "falls to a ninth or less, in each of six small networks" in text and gains.min() ** 2 > 9


def test_leaky_outputs_put_a_factor_of_ten_behind_the_last_layer(text, six):
    (linear, _), (before, after) = six["linear"], six["leaky"]
    assert f"{linear[0, 2]:.0f} becomes {before[0, 2]:,.0f}, and that is the worst of the three" in text
    assert before[0, 2] == pytest.approx(10 * linear[0, 2], rel=1e-2)
    assert "is the worst in two of the six networks then" in text and (before.argmax(1) == 2).sum() == 2
    assert "without the mean image all 18 layers gain" in text and (after < before).all()
