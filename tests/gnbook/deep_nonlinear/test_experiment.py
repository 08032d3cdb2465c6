"""The experiment of both pages on depth and activations."""

import pytest
import torch
from gnbook.deep_nonlinear.chain import kernel, layers_of
from gnbook.deep_nonlinear.experiment import draw, kappa, of_table, prepared, row_of, widths_of

from tests.oracles import normal

X = normal(5, 8, seed=1)


def test_each_preparation_does_what_its_name_says():
    raw, scaled, standardised, less = prepared(X).values()
    assert raw is X
    for images in (scaled, less):
        torch.testing.assert_close(images.square().mean(), torch.tensor(1.0).double())
    torch.testing.assert_close(less.mean(0), torch.zeros(8).double(), atol=1e-12, rtol=0)
    torch.testing.assert_close(standardised.mean(), torch.tensor(0.0).double(), atol=1e-12, rtol=0)
    torch.testing.assert_close(standardised.std(), torch.tensor(1.0).double())


@pytest.mark.parametrize("shape", ["chain", "skips"])
def test_a_row_is_about_the_network_of_its_seed(shape):
    widths = widths_of(8, 3, 60, 2)
    row = row_of("tanh", shape, widths, X, seed=2)
    assert row["kappa"] == pytest.approx(kappa(kernel(layers_of(draw("tanh", widths, shape, seed=2), X))))
    assert row["from_below"] <= row["kappa"] <= row["sharper"] <= row["plain"]
    assert (row["depth"], row["n"], row["k"], row["width"], row["seed"]) == (3, 5, 2, 60, 2)
    assert of_table([{"data": "raw"} | row], "raw", "tanh", shape)[3]["kappa"] == row["kappa"]
    assert not of_table([{"data": "raw"} | row], "white", "tanh", shape)
