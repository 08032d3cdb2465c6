"""Training: the same steps as a plain loop, the same path after an interruption, and what goes wrong."""

import hashlib
import math
from functools import partial

import pytest
import torch
from gnbook.shared import epochs
from gnbook.shared.epochs import CheckpointError, DivergedError, train_epochs
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


def test_rows_say_what_was_measured_and_when():
    x, y = problem()
    nets = [network(0), network(1)]
    first = [half_squared_error(net(x), y).item() for net in nets]
    seen = []

    def measure(net):
        seen.append(net)
        return {"norm": net.layers[0].norm().item()}

    rows = train_epochs(nets, x, y, SGD, seeds=[3, 4], epochs=5, batch_size=4, every=2, measure=measure)
    assert [(row["epoch"], row["seed"]) for row in rows] == [(e, s) for e in (0, 2, 4) for s in (3, 4)]
    assert seen == nets * 3
    assert [row["loss"] for row in rows[:2]] == pytest.approx(first)
    shorter = [network(0), network(1)]
    train_epochs(shorter, x, y, SGD, seeds=[3, 4], epochs=4, batch_size=4)
    assert [row["norm"] for row in rows[4:]] == pytest.approx([net.layers[0].norm().item() for net in shorter])


# Interruptions
def measured(net):
    return {"first": next(iter(net.parameters())).sum().item()}


SETTINGS = {"seeds": [1, 2], "batch_size": 4, "every": 2, "measure": measured, "schedule": DECAY}


@pytest.mark.parametrize("optimizer", [MOMENTUM, ADAM])
@pytest.mark.parametrize("many", [1, 2])
@pytest.mark.parametrize("stopped", [0, 3])
def test_an_interrupted_training_ends_with_the_same_bits(tmp_path, optimizer, many, stopped):
    x, y = problem()
    settings = SETTINGS | {"seeds": SETTINGS["seeds"][:many]}
    whole = [convolution(seed) for seed in range(many)]
    rows = train_epochs(whole, x, y, optimizer, epochs=7, **settings)

    path, calls = tmp_path / "run.checkpoint", []

    def interrupted(net):
        calls.append(net)
        if len(calls) > many * (stopped + 1) - 1:
            raise KeyboardInterrupt
        return measured(net)

    with pytest.raises(KeyboardInterrupt):
        first = [convolution(seed) for seed in range(many)]
        train_epochs(first, x, y, optimizer, epochs=7, checkpoint=path, **settings | {"measure": interrupted})
    again = [convolution(seed) for seed in range(many)]
    assert train_epochs(again, x, y, optimizer, epochs=7, checkpoint=path, **settings) == rows
    torch.testing.assert_close(state(*again), state(*whole), rtol=0, atol=0)
    assert [file.name for file in tmp_path.iterdir()] == ["run.checkpoint"]


def test_a_longer_training_goes_on_from_a_shorter_one(tmp_path):
    x, y = problem()
    path = tmp_path / "run.checkpoint"
    train_epochs([network()], x, y, ADAM, seeds=[1], epochs=4, batch_size=4, checkpoint=path)
    on, whole = network(), network()
    rows = train_epochs([on], x, y, ADAM, seeds=[1], epochs=9, batch_size=4, checkpoint=path)
    assert rows == train_epochs([whole], x, y, ADAM, seeds=[1], epochs=9, batch_size=4)
    torch.testing.assert_close(state(on), state(whole), rtol=0, atol=0)


def test_a_write_that_fails_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    x, y = problem()
    path = tmp_path / "run.checkpoint"
    train_epochs([network()], x, y, SGD, seeds=[1], epochs=2, batch_size=4, checkpoint=path)
    before = path.read_bytes()

    def full(_):
        raise OSError("No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        train_epochs([network()], x, y, SGD, seeds=[1], epochs=3, batch_size=4, checkpoint=path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


# Bad input
@pytest.mark.bad_input
@pytest.mark.parametrize("many", [1, 2])
def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_checkpoint(tmp_path, many):
    x, y = problem()
    path = tmp_path / "run.checkpoint"
    nets = [network(seed) for seed in range(many)]
    explode = partial(torch.optim.SGD, lr=30.0)
    settings = {"seeds": [3, 4][:many], "epochs": 100, "batch_size": 4}
    with pytest.raises(DivergedError, match=r"with seed [34] is not finite in epoch \d+; .*is of epoch \d+; take") as e:
        train_epochs(nets, x, y, explode, checkpoint=path, **settings)
    rows = e.value.rows
    assert rows and all(all(map(math.isfinite, row.values())) for row in rows)
    saved = torch.load(epochs.io.BytesIO(path.read_bytes()[32:]), weights_only=True)
    assert saved["rows"] == rows and saved["epoch"] == rows[-1]["epoch"]
    assert all(torch.isfinite(tensor).all() for tensor in saved["state"].values())


@pytest.mark.bad_input
@pytest.mark.parametrize("many", [1, 2])
def test_a_last_step_that_diverges_after_the_last_measurement(tmp_path, many):
    x, y = problem()
    path = tmp_path / "run.checkpoint"
    explode = partial(torch.optim.SGD, lr=1e200)  # the loss is finite before the only step, and not after it
    with pytest.raises(DivergedError, match=r"is not finite in epoch 1; .*run\.checkpoint is of epoch 0; take"):
        nets = [network(seed) for seed in range(many)]
        train_epochs(nets, x, y, explode, seeds=[3, 4][:many], epochs=1, batch_size=len(x), every=2, checkpoint=path)


@pytest.mark.bad_input
@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "something else"])
def test_a_damaged_checkpoint_is_named(tmp_path, damage):
    x, y = problem()
    path = tmp_path / "run.checkpoint"
    train_epochs([network()], x, y, SGD, seeds=[1], epochs=2, batch_size=4, checkpoint=path)
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 1
    other = hashlib.sha256(b"other").digest() + b"other"  # whole, but no checkpoint
    path.write_bytes({"truncated": content[:-100], "flipped": content, "empty": b""}.get(damage, other))
    with pytest.raises(CheckpointError, match=r"(?s)run\.checkpoint (is damaged|cannot be read \(.+\)); remove it"):
        train_epochs([network()], x, y, SGD, seeds=[1], epochs=2, batch_size=4, checkpoint=path)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("what", "changed"),
    [
        ("optimizer", {"optimizer": partial(torch.optim.SGD, lr=0.06)}),
        ("optimizer", {"optimizer": ADAM}),
        ("seeds", {"seeds": [2]}),
        ("batch_size", {"batch_size": 5}),
        ("every", {"every": 2}),
        ("loss", {"loss": nn.functional.mse_loss}),
        ("schedule", {"schedule": DECAY}),
        ("networks", {"networks": [network(1)]}),
        ("data", {"targets": problem(1)[1]}),
    ],
)
def test_resuming_with_other_settings_says_which(tmp_path, what, changed):
    x, y = problem()
    path = tmp_path / "run.checkpoint"
    settings = {"networks": [network()], "x": x, "targets": y, "optimizer": SGD}
    settings |= {"seeds": [1], "epochs": 2, "batch_size": 4, "checkpoint": path}
    train_epochs(**settings)
    with pytest.raises(CheckpointError, match=rf"was written with another {what}; give the same settings"):
        train_epochs(**settings | {"networks": [network()]} | changed)


@pytest.mark.bad_input
def test_a_checkpoint_beyond_the_end(tmp_path):
    x, y = problem()
    path = tmp_path / "run.checkpoint"
    train_epochs([network()], x, y, SGD, seeds=[1], epochs=3, batch_size=4, checkpoint=path)
    with pytest.raises(CheckpointError, match="is of epoch 3, beyond the 2 asked for"):
        train_epochs([network()], x, y, SGD, seeds=[1], epochs=2, batch_size=4, checkpoint=path)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"networks": []}, "0 networks and 1 seeds were given"),
        ({"seeds": [1, 2]}, "1 networks and 2 seeds were given"),
        ({"targets": problem(n=9)[1]}, "x has 10 samples and targets has 9"),
        ({"epochs": 0}, "epochs is 0; a whole number from 1 on"),
        ({"batch_size": 2.5}, r"batch_size is 2\.5; a whole number"),
        ({"every": -1}, "every is -1; a whole number"),
    ],
)
def test_arguments_that_do_not_fit(changed, message):
    x, y = problem()
    settings = {"networks": [network()], "x": x, "targets": y, "optimizer": SGD}
    settings |= {"seeds": [1], "epochs": 2, "batch_size": 4}
    with pytest.raises(ValueError, match=message):
        train_epochs(**settings | changed)
