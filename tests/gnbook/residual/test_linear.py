"""What the pages on residual networks measure of linear ones."""

import pytest
import torch
from gnbook.residual.linear import measured, network

import gnlib
from gnlib import bounds


def test_each_number_is_that_of_one_network():
    moment = gnlib.SecondMoment.from_data(torch.eye(6).double())
    kappas, lemma = measured(moment, 8, [2, 3], 2, ["no skip", "L"], ["L"], outputs=3)
    assert {name: found.shape for name, found in kappas.items()} == {"no skip": (2, 2), "L": (2, 2)}
    weights = network([6, 8, 8], 1)[:1] + network([8, 3], 1001)
    for name, skip in (("no skip", 0), ("L", 2)):
        found = float(gnlib.condition_number(gnlib.linear_gauss_newton(weights, moment, skip)))
        assert kappas[name][1, 0] == pytest.approx(found, rel=1e-12)
    deeper = network([6, 8, 8], 0) + network([8, 3], 1000)
    assert lemma["L"][1] == pytest.approx(bounds.zhao_lemma_2(deeper, moment, 3.0), rel=1e-12)
