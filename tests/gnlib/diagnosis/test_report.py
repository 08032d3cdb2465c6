"""A report says what its parts say, on one page, and leaves the network as it was."""

import re
import sys

import pytest
import torch
from torch import nn

import gnlib
from gnlib.diagnosis.remarks import off_scale
from gnlib.eigen.dense import BY_FACTOR, ends_of
from tests.gnlib.diagnosis.networks import CASES, classes, drawn, page
from tests.gnlib.jacobian.cases import warmed
from tests.gnlib.networks import Whole, perceptron


@pytest.mark.parametrize("name", CASES)
def test_it_says_what_its_parts_say(name):
    net, x = drawn(name, 6)
    y = classes(6, net(x).shape[1])
    before = {key: value.clone() for key, value in net.state_dict().items()}
    found = gnlib.report(net, x, y, loss="cross_entropy", budget=1e-3)
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    g = gnlib.GaussNewton(net, x, y, loss="cross_entropy")
    values, forecast = g.eigenvalues(), g.forecast()
    assert found.condition.largest == pytest.approx(values[0].item(), rel=1e-10)
    assert found.full == len(values) and found.samples == 6
    plain = gnlib.condition_number(net, x)
    assert found.squared_error.largest == pytest.approx(plain.largest, rel=1e-10)
    expected = [2 / values[0].item(), 3.8 / values[0].item()]
    assert [each.rate for each in found.rates] == pytest.approx(expected, rel=1e-10)
    assert (found.layers, found.culprits) == (g.by_layer(), g.culprits())
    torch.testing.assert_close(found.forecast.losses, forecast.losses, rtol=1e-9, atol=1e-14)
    text = str(found)
    assert f"rank {found.condition.rank} of {found.full}" in page(found) and repr(found) == text
    assert all(len(line) <= 92 for line in text.splitlines())
    names = [line.name for line in found.lines()]
    assert {"condition number", "try", "gradient descent", "forecast", "steps", "cost"} <= {*names}
    assert names.index("try") < names.index("rank")  # what to do comes first
    assert found.safe[0] is None or f"gradient descent take {found.safe[0]:.2g}: ten real steps" in page(found)
    assert found._repr_html_().count("<table>") == 2


def test_without_targets_there_is_no_forecast_and_nothing_is_tried():
    net, x = drawn("mlp", 30)
    found = gnlib.report(net, x)
    text = page(found)
    assert found.forecast is None and "forecast" not in text and found.squared_error == found.condition
    assert found.waiting is None and found.advice is None and found.suggestions == ()
    assert "nothing was tried: a change is tried by" in text and "gradient descent no rate was tried: the" in text
    assert "fewer parameters than the 90 outputs" in text and "cannot fit all targets" in text
    with pytest.raises(ValueError, match="Nothing was tried, as y is missing"):
        found.apply()


def test_an_optimiser_has_a_line():
    net, x = drawn("mlp")
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    found = gnlib.report(net, x, torch.eye(5, 3), optimizer=optimizer, budget=1e-3)
    expected = gnlib.GaussNewton(net, x, torch.eye(5, 3), optimizer=optimizer).stable_rate()
    assert found.rates[2].rate == pytest.approx(expected.rate)
    assert found.forecast.stable_rate == pytest.approx(found.rates[2].rate, rel=1e-6)
    assert "Adam with momentum 0.9" in page(found) and not optimizer.state


def casting(cast):
    return Whole(lambda self, x: self.layer(cast(x).to(x.dtype)), layer=nn.Linear(5, 3))


def normalised():
    return nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 3))


def large():
    net = nn.Linear(5, 3)
    nn.init.normal_(net.weight, std=20)
    return net


BFLOAT16 = torch.autocast("cpu", torch.bfloat16)
FRESH, CASTS = "batch normalisations are fresh", "the forward pass casts to"


@pytest.mark.parametrize(
    ("make", "options", "said", "not_said"),
    [
        (large, {}, "weights of the module are", CASTS),
        (lambda: nn.Sequential(nn.Linear(5, 3), nn.Softmax(1)), {"loss": "cross_entropy"}, "are probabilities", CASTS),
        (normalised, {"mode": "train"}, "outputs depend on the other samples", FRESH),
        (normalised, {"mode": "eval"}, f"1 {FRESH}", "outputs depend"),
        (lambda: warmed(normalised(), (5,)), {"mode": "eval"}, "rank", FRESH),
        (lambda: casting(lambda x: x.half()), {}, f"{CASTS} float16:", "weights of"),
        (lambda: casting(lambda x: x.to(dtype=torch.bfloat16)), {}, f"{CASTS} bfloat16:", "weights of"),
        (lambda: casting(BFLOAT16(lambda x: x * 1.0)), {}, f"{CASTS} bfloat16:", "weights of"),
        (lambda: casting(lambda x: x.float()).double(), {}, f"{CASTS} float32:", "weights of"),
        (lambda: casting(lambda x: x.float()), {}, "rank", CASTS),  # which is what the module computes in
        (lambda: casting(lambda x: x.to(torch.int64)), {}, "rank", CASTS),
    ],
)
def test_what_is_unusual_is_remarked_and_nothing_else(make, options, said, not_said):
    torch.manual_seed(0)
    text = page(gnlib.report(make(), torch.randn(4, 5) * 9, **options))
    assert said in text and not_said not in text


def test_weights_off_scale_are_found_and_others_are_not():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 8), nn.TransformerEncoderLayer(8, 2, 32))
    assert not off_scale(net)
    with torch.no_grad():
        net[0].weight.mul_(1e-2)
        net[3].self_attn.in_proj_weight.mul_(1e-2)
        net[3].linear2.weight.zero_()  # as for a head that is to start at zero
    assert [*off_scale(net)] == ["0", "3.self_attn", "3.linear2"] and off_scale(net)["3.linear2"] == 0
    assert off_scale(net)["0"] == pytest.approx(4 * net[0].weight.square().mean().sqrt().item())


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
    with pytest.raises(ValueError, match="has no state"):
        gnlib.report(net, x, optimizer=torch.optim.Adam(net.parameters()))
    with pytest.raises(ValueError, match="most is 0"):
        gnlib.GaussNewton(net, x).culprits(most=0)


def test_a_network_that_cannot_be_copied_has_a_report_all_the_same():
    net, x = drawn("mlp")
    net.register_buffer("kept", net[0].weight * 2)  # of a graph, of which there are no copies
    found = gnlib.report(net, x, torch.eye(5, 3), budget=1.0)
    assert found.condition.rank > 0 and found.suggestions == () and found.safe == ()
    assert "try nothing was tried: a copy of the network cannot be trained here" in page(found)
    assert "not tried any change: Only Tensors created explicitly by the user" in page(found)


LINE = torch.linspace(-1, 1, 40, dtype=torch.float64)[:, None]
ANALYTIC = {  # at distinct points: of full rank, which double precision does not show
    "tanh": lambda: nn.Sequential(nn.Linear(1, 30), nn.Tanh(), nn.Linear(30, 1)),
    "sigmoid, two outputs": lambda: nn.Sequential(nn.Linear(1, 30), nn.Sigmoid(), nn.Linear(30, 2)),
    "layer norm": lambda: nn.Sequential(nn.Linear(1, 20), nn.LayerNorm(20), nn.GELU(), nn.Linear(20, 1)),
}


@pytest.mark.parametrize("kind", ANALYTIC)
def test_a_rank_without_a_gap_is_not_determined(kind):
    torch.manual_seed(2)
    found = gnlib.report(ANALYTIC[kind]().double(), LINE)
    text = page(found)
    assert found.condition.method == BY_FACTOR and not found.condition.resolved
    assert f"numerically {found.condition.rank} of {found.full}: not determined" in text
    assert "cannot fit all targets" not in text and "can fit any targets" not in text


def test_a_gap_determines_the_rank():
    net, x = perceptron(3, 2, nn.ReLU, 40, seed=4), torch.randn(8, 3)
    assert "rank 16 of 16: linearised, the network can fit any targets" in page(gnlib.report(net, x))
    found = gnlib.report(net, torch.cat([x, x[:2]]))
    assert found.condition.resolved
    assert "16 of 20: linearised, the network cannot fit all targets" in page(found)


@pytest.mark.parametrize("smallest", [-1e-17, 0.0, 1e-18])
def test_a_given_rank_beyond_rounding_is_a_lower_bound(smallest):
    values = torch.tensor([smallest, 0.5, 1.0], dtype=torch.float64)
    found = ends_of(values, 3, method="by hand")
    assert not found.resolved and found.smallest > 0 and found.value <= 1 / 1e-16
