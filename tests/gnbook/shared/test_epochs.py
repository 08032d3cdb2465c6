"""Training: the same steps as a plain loop, side by side too, and what goes wrong."""

import hashlib
from functools import partial

import pytest
import torch
from gnbook.shared.epochs import CheckpointError, DivergedError, read_checkpoint, train_epochs, write_checkpoint
from gnbook.shared.networks import FullyConnected, xavier_weights
from gnbook.shared.training import half_squared_error
from torch import nn
from torch.nn.utils import prune

SGD = partial(torch.optim.SGD, lr=0.05)
MOMENTUM = partial(torch.optim.SGD, lr=0.02, momentum=0.9, weight_decay=1e-3)
ADAM = partial(torch.optim.Adam, lr=0.01)
DECAY = partial(torch.optim.lr_scheduler.StepLR, step_size=3, gamma=0.1)


def problem(seed=0, n=10, d=4, k=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator).double(), torch.randn(n, k, generator=generator).double()


def network(seed=0, widths=(4, 6, 3), relu=True):
    weights = xavier_weights(widths, generator=torch.Generator().manual_seed(seed))
    return FullyConnected(weights, relu=relu, dtype=torch.float64)


def convolution(seed=0):
    """Return a module with batch normalisation and a mask, for inputs of 4 values."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = nn.Sequential(
            nn.Unflatten(1, (1, 4)),
            nn.Conv1d(1, 5, 3, bias=False),
            nn.BatchNorm1d(5),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(10, 3),
        ).double()
    prune.l1_unstructured(module[1], "weight", amount=0.4)
    return module


def state(*networks):
    return [tensor for net in networks for tensor in net.state_dict().values()]


def plain_loop(net, x, y, optimizer, seed, epochs, batch_size, loss=half_squared_error, schedule=None):
    steps = optimizer(net.parameters())
    rates = schedule(steps) if schedule else None
    order = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for some in torch.randperm(len(x), generator=order).split(batch_size):
            steps.zero_grad()
            loss(net(x[some]), y[some]).backward()
            steps.step()
        if rates:
            rates.step()


@pytest.mark.parametrize("optimizer", [SGD, MOMENTUM, ADAM])
@pytest.mark.parametrize("schedule", [None, DECAY])
@pytest.mark.parametrize("build", [network, convolution])
@pytest.mark.parametrize("batch_size", [4, 99])
def test_it_takes_the_steps_of_a_plain_loop(optimizer, schedule, build, batch_size):
    x, y = problem()
    ours, theirs = build(), build()
    settings = {"epochs": 5, "batch_size": batch_size, "schedule": schedule}
    train_epochs([ours], x, y, optimizer, seeds=[7], every=2, **settings)
    plain_loop(theirs, x, y, optimizer, 7, **settings)
    torch.testing.assert_close(state(ours), state(theirs), rtol=0, atol=0)


@pytest.mark.parametrize("optimizer", [MOMENTUM, ADAM])
@pytest.mark.parametrize("build", [network, convolution])
@pytest.mark.parametrize("loss", [half_squared_error, nn.functional.mse_loss])
def test_side_by_side_networks_take_the_paths_that_they_take_alone(optimizer, build, loss):
    x, y = problem()
    together, alone = ([build(seed) for seed in range(3)] for _ in range(2))
    rows = train_epochs(together, x, y, optimizer, seeds=[5, 6, 7], epochs=6, batch_size=4, every=3, loss=loss)
    singles = [
        train_epochs([net], x, y, optimizer, seeds=[seed], epochs=6, batch_size=4, every=3, loss=loss)
        for net, seed in zip(alone, (5, 6, 7), strict=True)
    ]
    torch.testing.assert_close(state(*together), state(*alone), rtol=1e-9, atol=1e-12)
    for row, single in zip(rows, [row for step in zip(*singles, strict=True) for row in step], strict=True):
        assert row == pytest.approx(single, rel=1e-9)


@pytest.mark.bad_input
@pytest.mark.parametrize("many", [1, 2])
@pytest.mark.parametrize(("rate", "epochs", "batch_size"), [(30.0, 100, 4), (1e200, 1, 10)])  # and at the last step
def test_a_loss_that_is_not_finite_stops(many, rate, epochs, batch_size):
    x, y = problem()
    nets = [network(seed) for seed in range(many)]
    settings = {"seeds": [3, 4][:many], "epochs": epochs, "batch_size": batch_size, "every": min(epochs + 1, 3)}
    with pytest.raises(DivergedError, match=r"with seed [34] is not finite in epoch \d+; take a smaller rate"):
        train_epochs(nets, x, y, partial(torch.optim.SGD, lr=rate), **settings)


@pytest.mark.bad_input
@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "something else"])
def test_a_checkpoint_that_is_damaged_or_of_other_settings_is_named(tmp_path, damage):
    path, content = tmp_path / "run.checkpoint", {"settings": {"loss": "mse"}, "weight": torch.ones(3)}
    write_checkpoint(path, content)
    assert torch.equal(read_checkpoint(path, {"loss": "mse"})["weight"], torch.ones(3))
    with pytest.raises(CheckpointError, match=r"run\.checkpoint was written with another loss; give the same settings"):
        read_checkpoint(path, {"loss": "cross_entropy"})
    written = bytearray(path.read_bytes())
    if damage == "flipped":
        written[len(written) // 2] ^= 1
    other = hashlib.sha256(b"other").digest() + b"other"  # whole, but no checkpoint
    path.write_bytes({"truncated": written[:-100], "flipped": written, "empty": b""}.get(damage, other))
    with pytest.raises(CheckpointError, match=r"(?s)run\.checkpoint (is damaged|cannot be read \(.+\)); remove it"):
        read_checkpoint(path, {"loss": "mse"})
