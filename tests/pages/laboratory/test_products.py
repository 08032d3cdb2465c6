"""The tables of "Networks of any size": what the page says of them holds."""

import numpy as np

from tests.pages.pages import cells, named, number, table

PAGE = "laboratory/products"


def test_the_linear_model_lies_between_bounds_that_close():
    rows = cells(PAGE, "bounds after 1,000 steps over the linear model")
    widths = [upper - lower for _, lower, upper, _ in rows]
    assert all(lower <= 1 <= upper for _, lower, upper, _ in rows)
    assert widths == sorted(widths, reverse=True) and rows[0][1] < 0.5 and widths[-2] < 1e-3


def test_a_product_costs_two_gradients_and_the_band_some_tens_of_products():
    rows = named(PAGE, "100 images, single precision")
    assert len(rows) == 4
    for _, gradients, largest, band, _, error in rows.values():
        assert 1 < gradients < 5 and largest <= 25 and largest < band <= 60 and error < 1e-5


def test_condition_numbers_grow_like_powers_and_effective_ones_too():
    lines = [line.split() for line in table(PAGE, "condition numbers of the CNN, effective ones")]
    n, _, kappa, half, tenth, *left = np.array([[number(cell.rstrip("%")) for cell in line] for line in lines]).T
    assert all((np.diff(each) >= 0).all() for each in left) and (left[0] > left[1]).all() and (left[1] > left[2]).all()
    assert (np.diff(kappa) > 0).all() and (half < tenth).all() and (tenth < kappa).all()
    slopes = [np.polyfit(np.log(n), np.log(column), 1)[0] for column in (kappa, half, tenth)]
    assert slopes[0] > 1.2 and slopes[2] > slopes[1] > 0.8
