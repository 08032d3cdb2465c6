"""Networks of ReLUs with three kinds of weights."""

import pytest
import torch
from gnbook.deep_linear.orthogonal import WEIGHTS, trainings, weights
from gnbook.shared.networks import FullyConnected

import gnlib
from tests.strategies import derivatives, nonzero_eigenvalues


def test_rows_have_kappa_of_the_network_in_torch_and_the_fewest_steps_of_all_rates():
    x, _ = gnlib.load("mnist", 20, stride=7)
    x = (x - x.mean()) / x.std()
    net = FullyConnected(weights("Kaiming", 2, 20, x.shape[1], seed=0), relu=True, dtype=torch.float64)
    values = nonzero_eigenvalues(derivatives(net(x[:5]), list(net.parameters())), 5)
    rows = list(trainings(0, 2, width=20, n=20, stride=7, few=5, horizon=60))
    kappa = next(row["kappa"] for row in rows if row["weights"] == "Kaiming")
    assert kappa == pytest.approx((values[0] / values[-1]).item(), rel=1e-6)
    assert [(row["weights"], row["optimizer"]) for row in rows] == [
        (w, o) for w in WEIGHTS for o in ("descent", "adam")
    ]
    assert all(row["hundredth"] is None or row["hundredth"] >= row["tenth"] for row in rows)
    assert any(row["hundredth"] is not None for row in rows)
