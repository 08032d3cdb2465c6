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


def test_the_mean_image_is_what_slows_the_last_layer_down(text):
    lines = [line.rsplit(maxsplit=6) for line in table("piecewise-linear-maps", "40 images of 9 pixels")]
    found = {(name, layer): numbers for name, layer, *numbers in lines}
    (_, before, inputs, product, _), (_, after, mended, _, _) = (
        [float(word.replace(",", "")) for word in found[name, "3"]] for name in ("as they are", "less their mean")
    )
    assert before == max(
        float(kappa.replace(",", ""))
        for (name, layer), (_, kappa, *_) in found.items()
        if name == "as they are" and layer != "all"
    )
    assert (
        f"Its inputs have {inputs:.0f}, the slopes behind them a factor of ten, and the product is exact: {before:,.0f}."
        in text
    )
    assert product == before and product / inputs == pytest.approx(10, rel=1e-3)
    assert f"falls from {inputs:.0f} to {mended:.0f}, and that of the layer with it" in text
    assert (
        "the slowest layer of our digits network is six times better conditioned" in text and round(before / after) == 6
    )
    assert all(
        float(found["less their mean", layer][1].replace(",", ""))
        < float(found["as they are", layer][1].replace(",", ""))
        for layer in ("1", "2", "3", "all")
    )
