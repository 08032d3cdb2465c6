"""The rows of the trial in batches, and the network that the accuracy is of."""

import pytest
import torch
from gnbook.design.families import build
from gnbook.design.in_batches import accuracy, rows_in_batches, trained
from gnbook.design.initialisations import UNTUNED, initialised
from gnbook.design.trial import images
from gnbook.shared.tuning import LOSSES, Setting, constant_loss, tune

import gnlib

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def data():
    return images(6, 0, CPU), images(60, 10, CPU), images(40, 80, CPU)


@pytest.fixture(scope="module")
def rows(data):
    asked = {"optimizers": ["descent", "adam"], "losses": ["mse", "cross_entropy"], "horizon": 120}
    return list(rows_in_batches("wide and shallow", *data, seeds=[3], **asked))


def test_steps_are_those_of_the_best_rate(rows, data):
    _, train, _ = data
    (row,) = (
        r for r in rows if (r["initialisation"], r["loss"], r["optimizer"]) == ("Kaiming", "cross_entropy", "descent")
    )
    module = initialised(build("wide and shallow", seed=3), "Kaiming", train, seed=3)
    y = train.y.argmax(1)
    setting = Setting(
        train.x, y, "cross_entropy", "descent", {"half": constant_loss(y, "cross_entropy") / 2}, 120, 50, 3
    )
    outcome = tune(module, setting, 1 / gnlib.condition_number(module, train.x[:50]).largest)  # another guess
    assert outcome.best("half") == (row["steps"], row["rate"])


@pytest.mark.parametrize(("loss", "optimizer"), [("mse", "descent"), ("cross_entropy", "adam")])
def test_the_accuracy_is_of_the_network_that_has_reached_the_goal(rows, data, loss, optimizer):
    _, train, test = data
    y = train.y if loss == "mse" else train.y.argmax(1)
    goal = constant_loss(y, loss) / 2
    for row in rows:
        if (row["loss"], row["optimizer"]) == (loss, optimizer) and row["initialisation"] in UNTUNED and row["steps"]:
            module = initialised(build("wide and shallow", seed=3), row["initialisation"], train, seed=3)
            setting = Setting(train.x, y, loss, optimizer, {"half": goal}, 120, 50, 3)
            there, before = (
                trained(module, setting, row["rate"], int(row["steps"]) - back) for back in (0, setting.every)
            )
            at = [LOSSES[loss](network.double()(train.x), y).item() for network in (there, before)]
            assert at[0] < goal * 1.001 and at[1] > goal * 0.999
            assert accuracy(there, test) == pytest.approx(row["accuracy"], abs=1 / len(test.x))
