"""The numbers in the text of "The other half of the Hessian" are those of its tables."""

import numpy as np
import pytest

from tests.pages.pages import cells, named, prose, says

PAGE = "laboratory/functional-hessian"
TEXT = prose(f"notebooks/{PAGE}")


def test_at_a_small_start_the_gradient_lies_along_the_negative_eigenvector():
    w, v, z = 0.1, 0.1, 1.0
    omega = w * v - z
    first = np.array([[v * v, w * v], [w * v, w * w]])
    (low, high), vectors = np.linalg.eigh(first + omega * np.array([[0, 1], [1, 0]]))
    assert f"= {omega:.2f}$," in TEXT
    assert says(TEXT, f"${high:.2f}$ and ${low:.2f}$, ... ${np.linalg.eigvalsh(first)[1]:.2f}$.")
    gradient = omega * np.array([v, w])
    assert f"of ${low:.2f}$" in TEXT
    assert abs(vectors[:, 0] @ gradient) == pytest.approx(np.linalg.norm(gradient))


def test_which_eigenvalue_of_gauss_newton_sets_the_pace():
    rows = cells(PAGE, "which eigenvalue is at work")
    white, raw = ([row[1:] for row in rows if row[0] == kind] for kind in ("white", "as they are"))
    assert (len(white), len(raw)) == (2, 3) and white[0][0] == "300 to 1,000" and white[0][3] == 1
    assert all(pace == pytest.approx(smallest, rel=0.05) for _, pace, smallest, *_ in white)
    assert all(float(row[4].removeprefix("< ")) < 1e-8 for row in white) and all(row[4] < row[2] for row in raw)
    ratios = [row[3] for row in raw]
    said = f"is {ratios[0]:,.0f} times ... still {ratios[-1]:.0f} times"
    assert says(TEXT, said) and ratios == sorted(ratios, reverse=True)
    assert f"of {min(ratios):.0f} or" in TEXT and f"by {min(ratios):.0f} times" in TEXT
    along = {row[0]: row[3:5] for row in cells(PAGE, "images as they are")}
    (first, head), (last, late) = along[3000], along[30000]
    paces = first / ratios[0], last / ratios[-1]
    said = f"about {round(paces[0], -2):.0f} at first and {round(paces[1], -3):,.0f} at"
    assert said in TEXT and [raw[0][-1], raw[-1][-1]] == pytest.approx(paces, rel=0.02)
    assert f"have {head:,.0f} and {late:,.0f}," in TEXT and max(head / paces[0], late / paces[1]) < 5


def test_white_images_get_to_the_pace_of_gauss_newton():
    allowed = {row[0]: row[5] for row in cells(PAGE, "images white")}
    assert allowed[1000] is None and allowed[3000] is not None
    shares = [row[1] for row in cells(PAGE, "white images, 8 hidden units")]  # fewer units than outputs
    assert shares[-2] == pytest.approx(shares[-1], rel=0.05) and shares[-1] > 0.01


def test_the_second_half_fades_with_an_activation_too():
    tanh, relu = named(PAGE, "200 white images").values()
    for _, before, _, loss, after, top in (tanh, relu):
        assert before > 0.2 and after < before / 10 and loss > 0.05 and top == 1
    assert says(TEXT, f"to {tanh[4]} with ... to {relu[4]} with")
    above = [100 * (row[2] - 1) for row in (tanh, relu)]
    assert says(TEXT, f"is {above[0]:.0f} % ... and {above[1]:.0f} %")


def test_how_many_eigenvalues_are_negative():
    top, least, _, negative = named(PAGE, "eigenvalues; 920")["H"]
    assert f"start {negative:.0f} of" in TEXT and 0.3 < -least / top < 1 / 3
