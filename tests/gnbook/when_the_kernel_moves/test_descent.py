"""Gradient descent whose steps the kernel chooses, of networks and of linear models, and its samples."""

import math

import pytest
import torch
from gnbook.shared.hessian import kernel_change
from gnbook.when_the_kernel_moves.clusters import three_clusters, with_one
from gnbook.when_the_kernel_moves.descent import descend
from gnbook.when_the_kernel_moves.frozen import FrozenKernels
from gnbook.when_the_kernel_moves.heads import Entrywise, Softmax, output_kernel, swish
from gnbook.when_the_kernel_moves.networks import StackedNetworks, bottleneck, identity, shallow

from gnlib import condition_number
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


def test_what_is_measured_joins_the_row():
    def measure(run, kernel, output):
        return {"run": run, "kappa": condition_number(kernel / 12).value, "same": float(torch.equal(kernel, output))}

    results = descend(shallow(9, seeds=[0, 1]), X[:2], Y[:2], Entrywise(identity), most_steps=3, measure=measure)
    for run, result in enumerate(results):
        assert all(row["run"] == run and row["kappa"] >= 1 and row["same"] == 1 for row in result.rows)


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


@pytest.mark.bad_input
def test_width_one_works_and_a_unit_that_is_never_active_stops():
    dead = StackedNetworks([torch.tensor([[[0.0, -1.0]]]), torch.ones(1, 3, 1)], [1.0, 1.0], [torch.relu])
    (result,) = descend(dead, X[:1], Y[:1], Softmax(), most_steps=5000)
    assert result.status == "stalled" and result.rows[-1]["step"] < 200
    assert result.largest("change") == 0
    for head in (Softmax(), Entrywise(swish)):
        assert all(
            math.isfinite(r.rows[-1]["loss"]) for r in descend(shallow(1, seeds=[0, 1, 2]), X, Y, head, most_steps=50)
        )


@pytest.mark.bad_input
def test_equal_inputs_with_different_targets_stall_and_the_condition_number_says_that_the_kernel_is_singular():
    x, y = torch.ones(1, 4, 2).double(), torch.eye(3).double()[[0, 1, 2, 0]][None]
    networks = shallow(50, seeds=[0])
    found = condition_number(networks.kernel(x)[0] / 4)
    assert found.rank == 3 and found.resolved  # of 12: one sample in truth
    (result,) = descend(networks, x, y, Softmax(), most_steps=5000)
    entropy = -(0.5 * math.log(0.5) + 0.5 * math.log(0.25))
    assert result.status == "stalled" and result.rows[-1]["loss"] == pytest.approx(entropy, rel=1e-4)


@pytest.mark.bad_input
@pytest.mark.parametrize("size", [1e160, 1e300])
def test_a_loss_that_is_not_finite_stops_its_run_and_no_other(size):
    networks = shallow(5, seeds=[0, 1, 2])
    with torch.no_grad():
        for w in networks.weights:
            w[1] *= size
    results = descend(networks, X, Y, Entrywise(identity), most_steps=20)
    assert [r.status for r in results] == ["out of steps", "diverged", "out of steps"]
    assert results[1].rows[-1]["step"] == 0 and results[0].rows[-1]["loss"] < results[0].rows[0]["loss"]


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("targets", "settings", "message"),
    [
        (Y[:1], {"most_steps": 5}, "3 networks, 3 sets of samples and 1 of targets"),
        (Y, {"most_steps": 0}, "most_steps is 0"),
        (Y, {"most_steps": 5, "goal": math.nan}, "goal nan; a step at least and a positive goal"),
    ],
)
def test_arguments_that_do_not_fit(targets, settings, message):
    with pytest.raises(ValueError, match=message):
        descend(shallow(5, seeds=[0, 1, 2]), X, targets, Softmax(), **settings)
