"""A report says what its parts say, on one page, and leaves the network as it was."""

import copy
import math
import re
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional

import gnlib
from tests.gnlib.diagnosis.kinds import page
from tests.gnlib.diagnosis.networks import CASES, classes, drawn
from tests.gnlib.networks import Whole


@pytest.mark.parametrize("name", CASES)
def test_it_says_what_its_parts_say(name):
    net, x = drawn(name, 6)
    y = classes(6, net(x).shape[1])
    before = {key: value.clone() for key, value in net.state_dict().items()}
    found = gnlib.report(net, x, y, loss="cross_entropy", budget=1e-3)
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    values = gnlib.GaussNewton(net, x, y, loss="cross_entropy").eigenvalues()
    assert found.condition.largest == pytest.approx(values[0].item(), rel=1e-10)
    assert found.full == len(values) and found.samples == 6
    plain = gnlib.condition_number(net, x)
    assert found.squared_error.largest == pytest.approx(plain.largest, rel=1e-10)
    assert found.rates[0].rate == pytest.approx(2 / values[0].item(), rel=1e-10)
    assert found.rates[1].rate == pytest.approx(3.8 / values[0].item(), rel=1e-10)
    assert found.layers == gnlib.GaussNewton(net, x, y, loss="cross_entropy").by_layer()
    assert found.culprits == gnlib.GaussNewton(net, x, y, loss="cross_entropy").culprits()
    text = str(found)
    assert f"rank {found.condition.rank} of {found.full}" in page(found) and repr(found) == text
    assert all(len(line) <= 92 for line in text.splitlines())
    assert all(share.layer in text for share in found.layers.layers)
    assert found._repr_html_().count("<table>") == 2


def test_without_targets_there_is_no_forecast():
    net, x = drawn("mlp")
    found = gnlib.report(net, x)
    assert found.forecast is None and "forecast" not in str(found)
    assert found.squared_error == found.condition


def test_the_forecast_is_that_of_the_function():
    net, x = drawn("mlp")
    y = classes(5, 3)
    found, expected = gnlib.report(net, x, y, budget=1e-3).forecast, gnlib.GaussNewton(net, x, y).forecast()
    torch.testing.assert_close(found.losses, expected.losses, rtol=1e-9, atol=1e-14)
    assert (found.trusted, found.stable_rate) == (expected.trusted, pytest.approx(expected.stable_rate))


def test_an_optimiser_has_a_line():
    net, x = drawn("mlp")
    y = functional.one_hot(classes(5, 3), 3).double()
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    found = gnlib.report(net, x, y, optimizer=optimizer, budget=1e-3)
    assert found.rates[2].rate == pytest.approx(gnlib.GaussNewton(net, x, y, optimizer=optimizer).stable_rate().rate)
    assert found.forecast.stable_rate == pytest.approx(found.rates[2].rate, rel=1e-6)
    assert "Adam with momentum 0.9" in page(found) and not optimizer.state


def test_torch_s_squared_error_is_a_multiple():
    net, x = drawn("mlp")
    y = torch.zeros(5, 3, dtype=torch.float64)
    own, half = (gnlib.report(net, x, y, loss=loss, budget=1e-3) for loss in (nn.MSELoss(), "mse"))
    assert own.condition.largest == pytest.approx(half.condition.largest * 2 / 3, rel=1e-12)
    assert own.condition.value == pytest.approx(half.condition.value, rel=1e-6) and own.loss == "MSELoss"


def test_what_is_unusual_is_remarked():
    net, x = drawn("mlp")
    with torch.no_grad():
        net[0].weight.mul_(20)
    assert "weights of 0 are" in page(gnlib.report(net, x))
    probabilities = nn.Sequential(net, nn.Softmax(1))
    assert "the outputs are probabilities" in page(gnlib.report(probabilities, x, loss="cross_entropy"))
    normalised = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 3))
    assert "outputs depend on the other samples" in page(gnlib.report(normalised, x, mode="train"))


def test_a_rank_that_is_not_full_is_said():
    net, x = drawn("mlp", 30)
    text = page(gnlib.report(net, x))
    assert "fewer parameters than the 90 outputs" in text and "cannot fit all targets" in text


def casting(cast):
    return Whole(lambda self, x: self.layer(cast(x).to(x.dtype)), layer=nn.Linear(5, 3))


@torch.autocast("cpu", torch.bfloat16)
def under_autocast(x):
    return x * 1.0


@pytest.mark.parametrize(
    ("cast", "named"),
    [
        (lambda x: x.half(), "float16"),
        (lambda x: x.to(dtype=torch.bfloat16), "bfloat16"),
        (under_autocast, "bfloat16"),
        (lambda x: x.float(), None),  # which is what the module computes in
        (lambda x: x.to(torch.int64), None),
        (lambda x: x, None),
    ],
)
def test_casts_are_found(cast, named):
    text = page(gnlib.report(casting(cast), torch.randn(4, 5, generator=torch.Generator().manual_seed(0)) * 9))
    assert (f"the forward pass casts to {named}:" in text) if named else "forward pass casts" not in text


def test_a_module_in_double_precision_casts_to_single():
    net, x = casting(lambda x: x.float()).double(), drawn("mlp")[1]
    assert "the forward pass casts to float32" in page(gnlib.report(net, x))


def test_what_takes_long_is_announced_before_it_starts(capsys, monkeypatch):
    net, x = drawn("mlp")
    gnlib.report(net, x)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.modules["gnlib.diagnosis.report"], "LONG", 1e3)  # its function has the name of the module
    found = gnlib.report(net, x)
    said = re.fullmatch(r"The report takes about (\S+) s and (\S+) GiB.\n", capsys.readouterr().err)
    assert 0 < float(said[1]) < 10 and float(said[2]) == pytest.approx(found.gib, rel=0.05)


@pytest.mark.bad_input
def test_what_wrong_arguments_are_told():
    net, x = drawn("mlp")
    for wrong, message in (
        ({"y": torch.arange(5)}, "classes from 0 to 4; of 3 outputs"),
        ({"y": torch.zeros(4, 3)}, r"y has shape \(4, 3\)"),
        ({"loss": "hinge"}, "loss is 'hinge'"),
        ({"loss": nn.L1Loss(), "y": torch.zeros(5, 3)}, "no second derivative"),
        ({"optimizer": torch.optim.Adam(net.parameters())}, "has no state"),
        ({"memory": 0.0}, "memory is 0.0"),
    ):
        with pytest.raises(ValueError, match=message):
            gnlib.report(net, x, **wrong)
    with pytest.raises(TypeError, match="module is of type"):
        gnlib.report(lambda x: x, x)


def test_what_to_do_comes_first():
    net, x = drawn("mlp", 30)
    names = [line.name for line in gnlib.report(net, x, classes(30, 3), "cross_entropy", budget=1e-3).lines()]
    assert names[:4] == ["network", "condition number", "waits for", "try"]


def scaled(make=nn.Tanh):
    """A network whose inputs have a large mean, and targets of another scale than its outputs."""
    torch.manual_seed(0)
    x = 20 + torch.randn(24, 3)
    return nn.Sequential(nn.Linear(3, 12), make(), nn.Linear(12, 1)), x, 300 + 50 * (x[:, :1] - 20)


def test_a_suggestion_is_followed_in_one_line_until_nothing_gains():
    net, x, y = scaled()
    chain = [gnlib.report(net, x, y, budget=600)]
    assert str(chain[0]).startswith("targets") and "the outputs" in page(chain[0]).partition("network")[0]
    while chain[-1].suggestions and len(chain) < 6:
        after = chain[-1].apply()
        loss = (after(x) - y).square().sum() / 48
        assert chain[-1].suggestions[0].run.losses[0] == pytest.approx(loss.item(), rel=1e-5)
        chain.append(gnlib.report(after, x, y, budget=600))
    first = chain[0].suggestions[0]
    assert 1 < len(chain) < 6 and first.gain > 5 and f"try {first.what}" in page(chain[0])
    assert "try nothing new" in page(chain[-1]) and not chain[-1].suggestions
    new = x + 1  # prepared by the numbers of the samples that it was fitted to
    maps = chain[0].apply().maps["input_0"]
    torch.testing.assert_close(maps(new), (new - x.mean(0)) / x.std(0, correction=0), atol=1e-4, rtol=1e-4)


def test_without_targets_nothing_is_tried_and_that_is_said():
    net, x, _ = scaled()
    found = gnlib.report(net, x)
    assert found.advice is None and found.suggestions == () and "nothing was tried: a change is tried by" in page(found)
    assert "gradient descent no rate was tried: the quadratic model is" in page(found)
    with pytest.raises(ValueError, match="Nothing was tried, as y is missing"):
        found.apply()


def test_a_network_that_cannot_be_copied_has_a_report_all_the_same():
    net, x, y = scaled()
    net.register_buffer("kept", net[0].weight * 2)  # of a graph, of which there are no copies
    found = gnlib.report(net, x, y, budget=1.0)
    assert found.condition.rank > 0 and found.suggestions == () and found.safe == ()
    assert "try nothing was tried: a copy of the network cannot be trained here" in page(found)
    assert "not tried any change: Only Tensors created explicitly by the user" in page(found)


def test_a_rate_is_printed_after_ten_real_steps_at_it():
    """Half of what is stable on the quadratic model explodes here: a smaller one is found by halving."""
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (nn.Linear(8, 8), nn.ReLU())]
    net, x = nn.Sequential(*layers, nn.Linear(8, 1)), torch.randn(20, 8)
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(2)
    y = 1e4 * torch.randn(20, 1)
    found = gnlib.report(net, x, y, budget=1e-3)

    def rises(rate):
        copied, losses = copy.deepcopy(net), []
        descent = torch.optim.SGD(copied.parameters(), rate)
        for _ in range(11):
            loss = (copied(x) - y).square().sum() / 40
            losses.append(loss.item())
            descent.zero_grad()
            loss.backward()
            descent.step()
        return not losses[-1] <= losses[0]

    half, safe = found.rates[0].rate / 2, found.safe[0]
    assert rises(half) and rises(2 * safe) and not rises(safe) and math.log2(half / safe) % 1 == 0
    assert f"gradient descent take {safe:.2g}: ten real steps at it do not explode" in page(found)


def test_goals_end_at_the_first_that_is_unknown():
    net, x = drawn("mlp")
    forecast = gnlib.GaussNewton(net, x, classes(5, 3), "cross_entropy").forecast(steps=1)
    because = "a half is not reached by step 1, the last one; the linear model can fit these targets"
    assert f"steps unknown to a half of the loss: {because}" in page(forecast) and "a tenth" not in page(forecast)
