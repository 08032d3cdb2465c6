"""Many random layers, by the values of the histograms."""

import math

import numpy as np
import pytest
import torch
from gnbook.random_layers import bounds, histograms
from gnbook.random_layers import matrices as rm


def test_it_measures_what_it_names():
    found = histograms.measure(6, 3, seed=1)
    generator = torch.Generator().manual_seed(1006)
    layers = rm.draw(6, histograms.BLOCK, generator=generator)[:3] / (2 * math.sqrt(48))
    assert found["kappa 2"] == pytest.approx(torch.linalg.cond(layers + torch.eye(6, dtype=torch.float64)).numpy())
    assert found["kappa W"] == pytest.approx(torch.linalg.cond(layers).numpy())
    assert found["norm"] == pytest.approx(torch.linalg.matrix_norm(layers, 2).numpy())
    known = bounds.riedi_lemma_36(rm.extremes(layers))
    assert found["sharper"] * found["kappa 2"] == pytest.approx(known.sharper.numpy())
    assert found["bound"] * found["kappa 2"] == pytest.approx(known.symmetric.numpy())
    assert set(histograms.BINS) < set(found) and {len(values) for values in found.values()} == {3}


def test_a_histogram_is_a_density():
    edges, heights = histograms.density(np.array([1.05, 1.5, 1.51, 3.0]), "kappa 2")
    assert (heights * np.diff(edges)).sum() == pytest.approx(3 / 4)  # one value is beyond the bins
