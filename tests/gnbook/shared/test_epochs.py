"""Training: the same steps as a plain loop, side by side too, and what goes wrong."""

from functools import partial

import pytest
import torch
from gnbook.shared.epochs import DivergedError, read_checkpoint, train_epochs, write_checkpoint
from gnbook.shared.networks import FullyConnected, xavier_weights
from gnbook.shared.training import half_squared_error
from torch import nn
from torch.nn.utils import prune

from tests.strategies import gaussian

SGD = partial(torch.optim.SGD, lr=0.05)
MOMENTUM = partial(torch.optim.SGD, lr=0.02, momentum=0.9, weight_decay=1e-3)
ADAM = partial(torch.optim.Adam, lr=0.01)
X, Y = gaussian(0, 10, 4), gaussian(1, 10, 3)


def network(seed):
    return FullyConnected(
        xavier_weights((4, 6, 3), generator=torch.Generator().manual_seed(seed)), relu=True, dtype=torch.float64
    )


def convolution(seed):
    """Return a module with batch normalisation and a mask, for inputs of 4 values."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 5, 3, bias=False), nn.BatchNorm1d(5), nn.ReLU(), nn.Flatten()]
        module = nn.Sequential(*layers, nn.Linear(10, 3)).double()
    prune.l1_unstructured(module[1], "weight", amount=0.4)
    return module


def plain_loop(net, optimizer, loss, seed, epochs, batch_size):
    steps, order = optimizer(net.parameters()), torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for some in torch.randperm(len(X), generator=order).split(batch_size):
            steps.zero_grad()
            loss(net(X[some]), Y[some]).backward()
            steps.step()


@pytest.mark.parametrize("many", [1, 3])
@pytest.mark.parametrize("optimizer", [SGD, MOMENTUM, ADAM])
@pytest.mark.parametrize("loss", [half_squared_error, nn.functional.mse_loss])
@pytest.mark.parametrize("build", [network, convolution])
@pytest.mark.parametrize("batch_size", [4, 99])
def test_networks_side_by_side_take_the_steps_of_plain_loops(many, optimizer, loss, build, batch_size):
    seeds = [7, 8, 9][:many]
    ours, theirs = ([build(seed) for seed in seeds] for _ in range(2))
    settings = {"epochs": 6, "batch_size": batch_size, "loss": loss}
    rows = train_epochs(ours, X, Y, optimizer, seeds=seeds, every=3, **settings)
    assert [(row["epoch"], row["seed"]) for row in rows] == [(epoch, seed) for epoch in (0, 3, 6) for seed in seeds]
    for net, other, seed, row in zip(ours, theirs, seeds, rows[-many:], strict=True):
        plain_loop(other, optimizer, seed=seed, **settings)
        tolerance = {"rtol": 0, "atol": 0} if many == 1 else {"rtol": 1e-9, "atol": 1e-12}
        torch.testing.assert_close([*net.state_dict().values()], [*other.state_dict().values()], **tolerance)
        assert row["loss"] == pytest.approx(loss(other(X), Y).item(), rel=1e-9)


@pytest.mark.bad_input
@pytest.mark.parametrize("many", [1, 2])
@pytest.mark.parametrize(("rate", "epochs", "batch_size"), [(30.0, 100, 4), (1e200, 1, 10)])  # and at the last step
def test_a_loss_that_is_not_finite_stops(many, rate, epochs, batch_size):
    nets = [network(seed) for seed in range(many)]
    settings = {"seeds": [3, 4][:many], "epochs": epochs, "batch_size": batch_size, "every": min(epochs + 1, 3)}
    with pytest.raises(DivergedError, match=r"with seed [34] is not finite in epoch \d+; take a smaller rate"):
        train_epochs(nets, X, Y, partial(torch.optim.SGD, lr=rate), **settings)


@pytest.mark.bad_input
def test_a_checkpoint_is_read_with_its_own_settings_only(tmp_path):
    path = tmp_path / "run.checkpoint"
    write_checkpoint(path, {"settings": {"loss": "mse"}, "weight": torch.ones(3)})
    assert torch.equal(read_checkpoint(path, {"loss": "mse"})["weight"], torch.ones(3))
    with pytest.raises(ValueError, match=r"run\.checkpoint was written with another loss; give the same settings"):
        read_checkpoint(path, {"loss": "cross_entropy"})
