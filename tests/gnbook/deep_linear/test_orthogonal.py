"""Networks of ReLUs with three kinds of weights."""

import pytest
import torch
from gnbook.deep_linear.orthogonal import WEIGHTS, trainings, weights
from gnbook.shared.networks import FullyConnected

import gnlib


def test_rows_have_kappa_of_the_network_in_torch_and_the_fewest_steps_of_all_rates():
    x, _ = gnlib.load("mnist", 20, stride=7)
    x = (x - x.mean()) / x.std()
    net = FullyConnected(weights("Kaiming", 2, 20, x.shape[1], seed=0), relu=True, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(
        lambda *w: torch.func.functional_call(net, dict(zip(dict(net.named_parameters()), w, strict=True)), (x[:5],)),
        tuple(p.detach() for p in net.parameters()),
    )
    s = torch.linalg.svdvals(torch.cat([part.reshape(50, -1) for part in jacobian], 1))
    kappa = (s[0] / s[s > 1e-10 * s[0]][-1]).item() ** 2
    rows = list(trainings(0, 2, width=20, n=20, stride=7, few=5, horizon=60))
    assert next(row["kappa"] for row in rows if row["weights"] == "Kaiming") == pytest.approx(kappa, rel=1e-6)
    assert [(row["weights"], row["optimizer"]) for row in rows] == [
        (w, o) for w in WEIGHTS for o in ("descent", "adam")
    ]
    assert all(row["kappa"] > 1 and (row["hundredth"] is None or row["hundredth"] >= row["tenth"]) for row in rows)
    assert any(row["hundredth"] is not None for row in rows)
