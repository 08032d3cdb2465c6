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
    return {"fewest": fewest} | {
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
    assert 3.5 < found[0, 2] / found[-1, 2] < 4.5 and 6 < found[0, 4] / found[-1, 4] < 7


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


def test_standardising_does_as_much_as_centring_on_photographs():
    raw, centred, standardised = (of_data(moment(kind, "cifar10", 8)) for kind in ("raw", "centred", "standardised"))
    assert raw / centred == pytest.approx(10, rel=0.1) and standardised == pytest.approx(centred, rel=0.05)
    assert of_data(moment("standardised")) > of_data(moment("raw")) / 3
