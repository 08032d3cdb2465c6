"""Gradient descent whose steps the kernel chooses, of networks and of linear models, and its samples."""

import pytest
import torch
from gnbook.shared.hessian import kernel_change
from gnbook.when_the_kernel_moves.clusters import three_clusters, with_one
from gnbook.when_the_kernel_moves.descent import descend
from gnbook.when_the_kernel_moves.frozen import FrozenKernels
from gnbook.when_the_kernel_moves.heads import Entrywise, Softmax, output_kernel, swish
from gnbook.when_the_kernel_moves.networks import StackedNetworks, bottleneck, shallow

from tests.strategies import gaussian

X, Y = three_clusters([0, 1, 2], 12)
X = with_one(X)


def test_it_ends_below_the_goal_and_measures_start_and_end():
    networks = shallow(40, seeds=[0, 1, 2])
    start, first = networks.kernel(X), Softmax().slopes(networks(X))
    results = descend(networks, X, Y, Softmax(), most_steps=5000, goal=1e-3)
    losses = Softmax().loss(networks(X), Y)
    end, last = networks.kernel(X), Softmax().slopes(networks(X))
    for run, result in enumerate(results):
        assert result.status == "reached"
        row = result.rows[-1]
        assert row["loss"] == pytest.approx(losses[run].item(), rel=1e-12) and row["loss"] < 1e-3
        assert all(row["loss"] >= 1e-3 for row in result.rows[:-1])
        assert row["change"] == pytest.approx(kernel_change(start[run], end[run]), rel=1e-10)
        outputs = [output_kernel(k[run], s[run]) for k, s in ((start, first), (end, last))]
        assert row["output_change"] == pytest.approx(kernel_change(*outputs), rel=1e-10)
        assert result.rows[0]["change"] == 0 and result.largest("change") >= row["change"]


def test_it_is_gradient_descent_with_the_rates_that_it_reports():
    networks, plain = shallow(6, seeds=[0]), shallow(6, seeds=[0])
    (result,) = descend(networks, X[:1], Y[:1], Entrywise(swish), most_steps=8)
    for row in result.rows[:-1]:  # one look a step, so early on
        loss = Entrywise(swish).loss(plain(X[:1]), Y[:1])
        assert loss.item() == pytest.approx(row["loss"], rel=1e-12)
        gradients = torch.autograd.grad(loss.sum(), list(plain.weights))
        with torch.no_grad():
            for w, g in zip(plain.weights, gradients, strict=True):
                w -= row["rate"] * g
    assert all(row["rate"] > 0 for row in result.rows)
    assert len(result.rows) == 9 and result.rows[-1]["time"] == pytest.approx(sum(r["rate"] for r in result.rows[:-1]))
    assert all(torch.allclose(a, b, rtol=1e-10) for a, b in zip(networks.weights, plain.weights, strict=True))


@pytest.mark.parametrize("far", [True, False])
def test_the_rate_is_the_inverse_of_the_largest_curvature_or_less(far):
    networks, head = bottleneck(20, 3, seeds=[5]), Entrywise(swish)
    f = networks(X[:1])
    targets = Y[:1] if far else head.outputs(f).detach() + 1e-3
    (slope,) = torch.autograd.grad(head.loss(f, targets).sum(), f)
    kernel = networks.kernel(X[:1])[0]
    curvature = torch.block_diag(*head.curvature(f.detach())[0])
    largest = torch.linalg.eigvals(curvature @ kernel).real.max().item()
    move = (kernel @ slope.flatten()).abs().max().item()
    assert (move > 2 * largest) == far and (largest > 2 * move) == (not far)
    (result,) = descend(networks, X[:1], targets, head, most_steps=1, goal=1e-9)
    assert result.rows[0]["rate"] == pytest.approx(1 / max(largest, move), rel=0.05)


def frozen(networks):
    return FrozenKernels(networks(X[:2]).detach(), networks.kernel(X[:2]))


@pytest.mark.parametrize("head", [Softmax(), Entrywise(swish)])
def test_a_network_without_a_hidden_layer_trains_as_its_kernel_says(head):
    networks = StackedNetworks([gaussian(0, 2, 3, 2)], [0.5], [])
    model = frozen(networks)
    real, ahead = (descend(n, X[:2], Y[:2], head, most_steps=200, goal=0.05) for n in (networks, model))
    for one, other in zip(real, ahead, strict=True):
        assert (one.status, len(one.rows)) == (other.status, len(other.rows))
        assert [row["loss"] for row in other.rows] == pytest.approx([row["loss"] for row in one.rows], rel=1e-8)
        assert one.largest("change") == 0 == other.largest("change") < other.largest("output_change")
    assert torch.allclose(model(X[:2]), networks(X[:2]), rtol=1e-8)
