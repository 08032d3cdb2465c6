"""The numbers in the text of the lesson "One hidden layer", and its findings."""

from functools import cache

import numpy as np
import pytest
import torch
from gnbook import results

import gnlib
from tests.pages.laboratory.test_one_hidden_layer import kappa, of_data
from tests.pages.laboratory.test_one_hidden_layer import moment as of_images
from tests.pages.pages import parameters, rows

PAGE = "one-hidden-layer"


def moment(kind, name="mnist", stride=4):
    return of_images(name, stride, kind)


def network(m, outer=1.0):
    v, w = gnlib.linear_weights([49, m, 10], generator=torch.Generator().manual_seed(0))
    return [v, outer * w]


@cache
def values():
    fewest = parameters(PAGE)["widths"][0]
    found = {
        name: kappa(network(fewest, outer), moment(kind))
        for kind in ("white", "raw", "centred")
        for name, outer in ((f"plain_{kind}", 1), (f"large_{kind}", 10))
    }
    return {"fewest": fewest, "rank": moment("raw").basis.shape[1]} | {
        name: round(value, -4 if name == "large_raw" else 0 if "white" in name else -3) for name, value in found.items()
    }


def brackets():
    """Width, bound from below, condition number, bound from above, and the one on white images."""
    return rows(PAGE, r"(?=\d+ units, raw images)")


def test_the_condition_numbers_are_those_of_the_library_for_linear_layers():
    for m, low, found, high, white in brackets():
        assert found == pytest.approx(kappa(network(int(m)), moment("raw")), rel=1e-4)
        assert white == pytest.approx(kappa(network(int(m)), moment("white")), abs=0.06)
        assert low < found < high
    assert [row[0] for row in brackets()] == parameters(PAGE)["widths"]


def test_whitening_does_more_than_width():
    found = np.array(brackets())
    assert 1e4 < (found[:, 2] / found[:, 4]).min() < 1e5
    fewest, *_, most = parameters(PAGE)["widths"]
    for kind in ("raw", "centred", "white"):
        assert 3 < kappa(network(fewest), moment(kind)) / kappa(network(most), moment(kind)) < 7


def test_kappa_stays_near_the_data():
    """Within a factor of four, where the bracket has one of up to fourteen."""
    data = of_data(moment("raw"))
    assert all(data < row[2] < 4 * data for row in brackets()) and max(row[-1] for row in brackets()) > 14


def test_full_images_cost_nine_orders_of_magnitude():
    found = np.hstack([rows(PAGE, r"(?=\d+ pixels: kappa)"), rows(PAGE, "centring divides")])
    assert 9 <= np.log10(found[-1, 1]) < 10 and (np.diff(found[:, 1]) > 0).all()
    assert np.round(np.log10(found[:, 1] / found[:, 2])).tolist() == [1, 1, 1]
    assert found[:, 3] == pytest.approx(found[:, 1] / found[:, 2], rel=0.05) and (found[:, 4] == 1).all()


def test_width_helps_late():
    found = {int(width): (kappa, theory) for width, kappa, theory in rows(PAGE, r"(?=\d+ units: kappa)")}
    pixels, rank = moment("raw", stride=1).basis.shape
    assert rows(PAGE, r"(?=\d+ pixels of rank)") == [[pixels, rank]]
    early = [kappa for m, (kappa, _) in found.items() if m < 2.3 * rank]
    late = [kappa for m, (kappa, _) in found.items() if m > 2 * rank]
    assert max(early) < 1.15 * min(early) and late == sorted(late, reverse=True) and late[-1] < late[0] / 2
    assert all(kappa == pytest.approx(theory, rel=0.05) for m, (kappa, theory) in found.items() if m > 2 * rank)
    for row in results.kept(PAGE):
        if row["figure"] == "width":
            assert found[row["width"]][1] == pytest.approx(row["asymptotic"], abs=0.06)


def test_the_output_layer_improves_before_twice_the_rank():
    """By the formula of the page, at the size of its first figure: with one output in place of ten nothing falls."""
    pixels, rank = moment("raw").basis.shape
    widths = [m for m in parameters(PAGE)["widths"] if m < 2 * rank]

    def end(m, k, sign):
        return (1 + sign * (k / m) ** 0.5) ** 2 + max(m**0.5 + sign * rank**0.5, 0) ** 2 / pixels

    one, ten = ([end(m, k, 1) / end(m, k, -1) for m in widths] for k in (1, 10))
    assert len(widths) == 2 and ten[0] > 1.5 * ten[1] and max(one) < 1.1 * min(one)


def test_standardising_does_as_much_as_centring_on_photographs():
    raw, centred, standardised = (of_data(moment(kind, "cifar10", 8)) for kind in ("raw", "centred", "standardised"))
    assert raw / centred == pytest.approx(10, rel=0.1) and standardised == pytest.approx(centred, rel=0.05)
    assert of_data(moment("standardised")) > of_data(moment("raw")) / 3
