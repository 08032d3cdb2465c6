"""The numbers in the text of the further experiments with leaky ReLUs are those of their tables."""

import pytest

from tests.book.pages import prose, table, texts, words_of


@pytest.fixture(scope="module")
def text():
    return prose("notebooks/leaky-relu-further")


def test_width_helps_on_raw_images(text):
    assert "There width helps, up to some 600 units with the ReLU, and still at 1,200 with a slope of 0.6:" in text
    _, relu, slightly = zip(
        *(map(float, words) for words in words_of("leaky-relu-further", "150 raw images")), strict=True
    )
    for kappas in (relu, slightly):
        assert kappas[2] < 0.7 * kappas[0] and kappas[3] > 0.9 * kappas[2]
    assert relu[3] > relu[2] and slightly[3] < slightly[2]


def test_bounds_on_white_and_on_raw_images(text):
    lines = [line.split() for line in table("leaky-relu-further", "bounds over κ")]
    above, below = (
        {name: [float(line[at]) for line in lines if line[0] == name] for name in ("white", "raw")} for at in (4, 5)
    )
    assert "**On white samples** ours are within a fifth of $\\kappa$ from width 1,000 on" in text
    assert "**On the raw ones** of figure 23 the bound from above is within a factor of ten." in text
    assert max(above["white"]) < 1.2 and min(below["white"]) > 0.8
    assert 5 < max(above["raw"]) < 10 and min(below["raw"]) > 0.1


def test_from_which_width_on_the_bounds_are_within_a_fifth(text):
    assert "within a fifth of $\\kappa$ from width 1,000 on, twice the number of samples" in text
    lines = table("leaky-relu-further", "slope 0.01, 500 white samples")
    assert "the limit for infinite width, 228 (dotted)" in text and any(
        "limit for infinite width: 227.7" in x for x in texts("leaky-relu-further")
    )
    rows = [line.split() for line in lines]
    measured = [row for row in rows if row[1] != "-"]
    assert {int(row[0]) for row in measured} == {500, 1000, 2000, 4000, 8000}
    for width, kappa, _, below, above, *_ in measured:
        near = 0.8 * float(kappa) < float(below) and float(above) < 1.2 * float(kappa)
        assert near == (int(width) >= 1000)


def test_six_sets_of_images(text):
    lines = {
        line[:23].strip(): line[23:].split() for line in table("leaky-relu-further", "condition number of the fig")
    }
    assert len(lines) == 6
    nearly = [float(cell) for cell in lines["nearly white"]]
    assert "something in between, near a slope of 0.6, better still" in text and nearly[2] == min(nearly)
    assert nearly[0] < nearly[-1]  # the ReLU is better than the linear network
    relu, *_, linear = map(float, lines["more images than pixels"])
    assert "Its number counts only what is left, so it is low." in text and linear < relu / 1000


def test_a_rate_that_is_not_stable_at_the_start_is_stable_twenty_steps_later(text):
    lines = [line.split() for line in table("leaky-relu-further", "λ after twenty steps")]
    *found, stable = ([float(cell) for cell in line[-3:]] for line in lines)
    assert "At the two larger rates $\\lambda$ falls by more than half within twenty steps" in text
    assert len(found) == 4 and stable[0] == 1
    for first, *larger in found:
        assert 0.9 < first <= 1 and all(share < min(0.5, most) for share, most in zip(larger, stable[1:], strict=True))


def test_a_linear_network_learns_fewer_directions(text):
    lines = [list(map(float, words)) for words in words_of("leaky-relu-further", "49 pixels")]
    assert "With more images it is left with $kr$ directions, still well conditioned." in text
    for n, r, rank, kappa, _, _, of_linear, linear in lines:
        assert of_linear <= rank and (of_linear < rank if n > r else linear < kappa)


def test_slopes_on_images_less_their_mean(text):
    assert "On centred ones the ReLU and a slope of 0.3 are about equal, and larger slopes are worse." in text
    lines = {
        line[:23].strip(): line[23:].split() for line in table("leaky-relu-further", "condition number of the fig")
    }
    relu, slightly, more, most, _ = map(float, lines["centred"])
    assert 0.8 < slightly / relu < 1.25 and 2 * relu < more < most
    white = [float(cell) for cell in lines["white"]]
    assert white == sorted(white, reverse=True) and white[-1] > 0.95 * white[-2]
