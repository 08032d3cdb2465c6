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
    found = {}  # of each layer: the rank, its condition number, that of its inputs, and two bounds
    for line in table("piecewise-linear-maps", "40 images of 9 pixels"):
        name, layer, *numbers = line.replace(",", "").replace("-", "nan").rsplit(maxsplit=6)
        found[name, layer] = [float(number) for number in numbers]
    before, after = (
        [found[name, layer] for layer in ("1", "2", "3", "all")] for name in dict.fromkeys(n for n, _ in found)
    )
    assert all(less[1] < raw[1] for raw, less in zip(before, after, strict=True))
    *first, (_, kappa, inputs, product, _), _ = before
    *_, (_, mended, of_mended, *_), _ = after
    assert all(layer[1] < kappa for layer in first) and product == kappa == pytest.approx(10 * inputs, rel=1e-3)
    assert f"Its inputs have {inputs:.0f}, the slopes behind them a factor of ten, and the product is exact: " in text
    assert f"and the product is exact: {kappa:,.0f}." in text
    assert f"falls from {inputs:.0f} to {of_mended:.0f}, and that of the layer with it" in text
    assert "is six times better conditioned" in text and round(kappa / mended) == 6
