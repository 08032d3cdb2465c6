"""The findings of the laboratory's "The other half of the Hessian", by its tables."""

import pytest

from tests.pages.pages import cells, named

PAGE = "laboratory/functional-hessian"


def test_which_eigenvalue_of_gauss_newton_sets_the_pace():
    rows = cells(PAGE, "which eigenvalue is at work")
    white, raw = ([row[1:] for row in rows if row[0] == kind] for kind in ("white", "as they are"))
    assert (len(white), len(raw)) == (2, 3) and white[0][0] == "300 to 1,000" and white[0][3] == 1
    assert all(pace == pytest.approx(smallest, rel=0.05) for _, pace, smallest, *_ in white)
    assert all(float(row[4].removeprefix("< ")) < 1e-8 for row in white) and all(row[4] < row[2] for row in raw)
    ratios = [row[3] for row in raw]
    assert (ratios[0], ratios[-1]) == pytest.approx((985, 48), rel=0.02) and ratios == sorted(ratios, reverse=True)
    along = {row[0]: row[3:5] for row in cells(PAGE, "images as they are")}
    (first, head), (last, late) = along[3000], along[30000]
    paces = first / ratios[0], last / ratios[-1]
    assert (round(paces[0], -2), round(paces[1], -3)) == (900, 20_000)
    assert [raw[0][-1], raw[-1][-1]] == pytest.approx(paces, rel=0.02)
    assert max(head / paces[0], late / paces[1]) < 5


def test_white_images_get_to_the_pace_of_gauss_newton():
    allowed = {row[0]: row[5] for row in cells(PAGE, "images white")}
    assert allowed[1000] is None and allowed[3000] is not None
    shares = [row[1] for row in cells(PAGE, "white images, 8 hidden units")]  # fewer units than outputs
    assert shares[-2] == pytest.approx(shares[-1], rel=0.05) and shares[-1] > 0.01


def test_the_second_half_fades_with_an_activation_too():
    tanh, relu = named(PAGE, "200 white images").values()
    for _, before, _, loss, after, top in (tanh, relu):
        assert before > 0.2 and after < before / 10 and loss > 0.05 and top == 1
    assert (tanh[4], relu[4]) == pytest.approx((0.044, 0.016), rel=0.02)
    assert [row[2] - 1 for row in (tanh, relu)] == pytest.approx([0.01, 0.12], abs=0.006)
