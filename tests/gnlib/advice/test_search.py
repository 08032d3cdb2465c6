"""Advice: what is found, in which order, what is said of the rest, and that following it does what it says."""

import math
from time import perf_counter

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, Optimizer

import gnlib
from gnlib import GaussNewton
from gnlib.advice.candidates import Change, Setting
from gnlib.advice.checks import remarks_on
from gnlib.advice.look import Candidate, Look, Measured
from gnlib.advice.race import Race
from gnlib.advice.runs import Run
from gnlib.advice.suggestions import Advice, Suggestion
from gnlib.advice.wrappers import by_feature
from gnlib.laws.waiting import Waiting
from tests.gnlib.diagnosis.networks import page
from tests.gnlib.networks import Whole, perceptron, recurrent

GENERATOR = torch.Generator().manual_seed(0)
AMPLE = 600.0  # seconds, of which a few are taken: what is tried depends on no machine


@pytest.fixture(autouse=True)
def seeded(monkeypatch):
    GENERATOR.manual_seed(0)
    monkeypatch.setattr("gnlib.advice.race.MOST_RUN", 5)


def random(*shape):
    return torch.randn(shape, generator=GENERATOR)


def uneven():
    """Features of different scales, and raw targets."""
    x = random(64, 4) * torch.tensor([1.0, 100.0, 0.01, 1.0]) + torch.tensor([0.0, 300.0, 1.0, 0.0])
    z = by_feature(x, 1)(x)
    return x, 150 + 70 * torch.tanh(z[:, :1] + z[:, 1:2] * z[:, 2:3])


def test_features_of_different_scales_and_raw_targets_are_found_and_the_chain_ends():
    x, y = uneven()
    net = perceptron(4, hidden=nn.ReLU)
    g = GaussNewton(net, x, y, optimizer=Adam(net.parameters(), lr=0.01))
    advice = g.advice(budget=AMPLE)
    assert advice.remarks[0].name == "targets" and "the outputs" in str(advice).splitlines()[0]
    first = advice.suggestions[0]
    assert "standardise the targets" in first.what and len(advice.suggestions) <= 3
    assert first.run.is_sound and first.gain >= 5
    assert [s.run.steps_to(first.goal) for s in advice.suggestions] == sorted(
        s.run.steps_to(first.goal) for s in advice.suggestions
    )
    new = advice.apply(0)
    loss = (new(x) - y).square().sum() / 128
    assert first.run.losses[0] == pytest.approx(loss.item(), rel=1e-5)
    again = GaussNewton(new, x, y, mode="train", optimizer=Adam(new.parameters(), lr=0.01)).advice(budget=AMPLE)
    assert not again.remarks and not any("standardise the targets" in what for what in again.tried)


def test_a_network_that_is_well_prepared_is_left_alone_and_what_had_no_time_is_named():
    q = torch.linalg.qr(random(30, 4))[0] * 30**0.5
    net, y = nn.Linear(4, 1), q @ random(4, 1)
    advice = GaussNewton(net, q, y).advice(budget=AMPLE)
    assert not advice.suggestions and "nothing new" in str(advice) and len(advice.tried) > 1
    assert f"{len(advice.tried) - 1} changes were measured" in page(advice) and "none gains a fifth" in page(advice)
    with pytest.raises(IndexError, match="There are 0 suggestions"):
        advice.apply(0)
    hurried = GaussNewton(net, 10 + q, y).advice(budget=1e-6)
    assert len(hurried.tried) == 1 and "no time within 1e-06 s; pass a larger budget=" in page(hurried)


def test_a_budget_for_no_ten_steps_is_said_to_be_too_small(monkeypatch):
    chosen = Look.chosen

    def late(look):
        found, look.budget = chosen(look), 0.0
        return found

    monkeypatch.setattr(Look, "chosen", late)
    hurried = GaussNewton(perceptron(), 10 + random(20, 3), random(20, 1)).advice(budget=2.0)
    assert hurried.suggestions == () and hurried.runs == {} and len(hurried.tried) > 1
    assert "try nothing was tried: 2 s are too few for ten steps with a change and without" in page(hurried)


def test_where_no_change_had_the_time_to_be_measured_nothing_was_tried():
    left_out = {"zero weights in 2 (Linear)": "no time for it within 0.1 s; pass a larger budget="}
    of_none = {"no change": Waiting(1.0, 2.0, 1.0, 1.0)}
    for why, value in ((left_out, "nothing was tried"), ({}, "nothing new")):
        (line, *_) = Advice((), of_none, {}, why, (), 0.1, 0.1).tries()
        assert line.value == value


def test_a_network_without_a_quadratic_model_whose_units_die_is_advised_all_the_same():
    torch.manual_seed(0)
    x, y = 1e4 * random(30, 3), torch.arange(30) % 3
    net = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))
    x += y[:, None] * 1e4
    advice = GaussNewton(net, x, y, "cross_entropy", optimizer=SGD(net.parameters(), lr=0.1)).advice(budget=AMPLE)
    first = advice.suggestions[0]
    assert first.before.end < 0.5  # at larger rates, that of SGD too, it only learns that all classes are alike, 1.1
    assert first.gain >= 10 and first.run.end < 0.2


def a_run(*losses):
    return Run(0.1, (*losses, *[losses[-1]] * (12 - len(losses))))


WAITING = Waiting(1.0, 2.0, 0.1, 1.0)


def test_a_suggestion_says_where_nothing_got_there_and_what_it_loses():
    nothing, found = Run(0.1, (1.0, math.inf)), a_run(1.0, 0.1)
    exploded = Suggestion("a", found, nothing, 0.2, WAITING, "SGD")
    assert exploded.gain == math.inf and "where without it 1 do not" in str(exploded) and exploded.held_out is None
    before, worse, as_good = (Run(0.1, found.losses, (2.0, least)) for least in (1.0, 1.2, 1.02))
    loses, keeps = (Suggestion("a", run, before, 0.2, WAITING, "SGD") for run in (worse, as_good))
    assert loses.loses and "on held-out data it loses: loss 1.2 at best, without it 1" in str(loses)
    assert not keeps.loses and "it does not lose" in str(keeps)


def raced(*kinds):
    """A race that has not begun, and candidates with changes of these kinds."""
    x, y = uneven()
    net = nn.Linear(4, 1)
    nn.init.zeros_(net.weight)
    measure = lambda _: Measured(1.0, 1.0, lambda _: WAITING)  # noqa: E731
    look = Look(Setting(net, [{0: x}], y, "mse"), measure, AMPLE, perf_counter())
    made = [tuple(Change(kind, kind, lambda m: m) for kind in some.split()) for some in kinds]
    named = type("Named", (), {"name": "SGD", "first_rate": staticmethod(lambda _, stable: stable / 2)})()
    return Race(look, [], named), look.unchanged, [Candidate(c, nn.Linear(4, 1), measure) for c in made]


def test_the_simpler_of_two_that_are_as_good_is_suggested():
    race, unchanged, (both, one, other) = raced("inputs targets", "inputs", "targets")
    slow = a_run(1.0, *[0.9] * 50, 0.05)
    quick, as_quick, later = (a_run(1.0, *[0.9] * n, 0.05) for n in (20, 21, 23))
    for runs, expected in (((quick, as_quick, later), ["inputs"]), ((quick, later, later), ["inputs; targets"])):
        race.runs = {unchanged: slow, both: runs[0], one: runs[1], other: runs[2]}
        assert [s.what for s in race.won][:1] == expected


def test_a_change_that_only_begins_lower_is_not_suggested():
    """The goal is 0.1; without a change the loss stays at 0.97, and is beyond it at once with zero weights, say."""
    race, unchanged, candidates = raced("weights", "inputs")
    for end, expected in ((0.9, ["inputs"]), (0.7, ["inputs", "weights"])):
        courses = a_run(0.96, *[end] * 200), a_run(1.0, *[0.98] * 20, *[0.5] * 180)
        race.runs = {unchanged: a_run(1.0, *[0.98] * 150, *[0.97] * 50)} | dict(zip(candidates, courses, strict=True))
        assert [s.what for s in race.won] == expected


@pytest.mark.parametrize("gains", [True, False])
def test_targets_that_were_standardised_in_vain_are_said_to_be(gains):
    race, unchanged, (targets,) = raced("targets")
    race.runs = {unchanged: a_run(1.0, *[0.9] * 50, 0.05), targets: a_run(1.0, *[0.9] * (20 if gains else 49), 0.05)}
    lines = [*remarks_on(race._look.setting, race.is_in_vain("targets"))]
    assert ("was tried, and saves no fifth" in lines[0].meaning) != gains
    assert race._first_rate(targets) == pytest.approx(0.1)  # as of the unchanged network, a fifth of the usual 0.5
    race.runs[unchanged] = Run(1e-9, race.runs[unchanged].losses)
    assert race._first_rate(targets) == pytest.approx(0.5 / 9)  # but not too far from what is usual


def test_time_is_left_to_measure_what_is_suggested_of_what_was_run():
    """Of 600 seconds two measurements of 200 leave a third candidate no time for runs."""
    race, unchanged, (first,) = raced("inputs")
    race.runs, race._look.longest = {unchanged: a_run(1.0), first: a_run(1.0)}, 200.0
    allowed = []

    def run(module, rate, goal, seconds, *_):
        allowed.append(seconds)
        return Run(rate, (1.0, *[0.9] * 12))

    race._trainer.run = run
    _ = [*race._others(first)]
    assert len(race.runs) == 2 + 2 and [allowed[0], allowed[-1]] == pytest.approx([400, 200], abs=5)


@pytest.mark.slow
def test_what_is_usual_is_run_and_nothing_that_was_run_is_faster_than_the_first_suggestion(monkeypatch):
    monkeypatch.setattr("gnlib.advice.race.MOST_RUN", 12)
    x, y = uneven()
    advice = GaussNewton(perceptron(4, hidden=nn.ReLU), x, y, optimizer="adam").advice(budget=AMPLE)
    first, goal = advice.suggestions[0], min(run.losses[0] for run in advice.runs.values()) / 10
    assert 1.05 * min(run.steps_to(goal) for run in advice.runs.values()) >= first.run.steps_to(goal) > 0
    usual = "standardise the targets", "standardise the inputs, each", "add batch", "Kaiming's weights"
    assert any(all(part in what for part in usual) for what in advice.runs)


@pytest.mark.slow
def test_a_part_that_gains_nothing_is_taken_away_in_a_run():
    x, y = uneven()
    net = perceptron(4, hidden=nn.ReLU)
    advice = GaussNewton(net, x, y, optimizer="adam").advice(budget=AMPLE)
    goal = min(run.losses[0] for run in advice.runs.values()) / 10
    steps = {frozenset(what.split("; ")): run.steps_to(goal) for what, run in advice.runs.items()}
    for suggestion in advice.suggestions:
        parts = frozenset(suggestion.what.split("; "))
        simpler = [n for some, n in steps.items() if some < parts and some != {"no change"}]
        assert all(n > 1.05 * steps[parts] or n == math.inf for n in simpler)
    assert any(len(parts) > 1 for parts in steps)


# Held-out data


def test_a_change_that_loses_on_held_out_data_says_so():
    """Directions of noise are short, and descent leaves them alone; whitened, they are learnt like the others."""
    torch.manual_seed(0)
    scales = torch.cat([torch.tensor([1.0, 0.1]), torch.full((18,), 1e-2)])
    x, new = random(40, 20) * scales, random(400, 20) * scales
    y, truth = (z[:, :1] + 10 * z[:, 1:2] + 0.7 * random(len(z), 1) for z in (x, new))
    g, held = GaussNewton(nn.Linear(20, 1), x, y), (new, truth)
    with_it = g.advice(budget=AMPLE, held_out=held)
    whitened = [s for s in with_it.suggestions if "whiten" in s.what]
    assert all(s.held_out for s in with_it.suggestions) and whitened
    assert all(s.loses for s in whitened) and "on held-out data it loses" in page(with_it)
    losers = [s.loses for s in with_it.suggestions]
    assert losers == sorted(losers) and not any(s.held_out for s in g.advice(budget=AMPLE).suggestions)
    with pytest.raises(ValueError, match="held_out is no pair"):
        g.report(held_out=new)


# Other inputs, modules and optimisers


@pytest.mark.parametrize("given", ["tuple", "dict", "list"])
def test_tuples_dicts_and_lists_are_tried_like_one_tensor(given):
    net = Whole(lambda self, x, mask: (self.net(x) * mask).mean(1), net=perceptron(4, hidden=nn.ReLU, width=16))
    x, mask = 1000 + random(24, 6, 4), torch.ones(24, 6, 1)
    y = (x[:, :, :1] - 1000).mean(1)
    kinds = {"tuple": (x, mask), "dict": {"x": x, "mask": mask}, "list": [(x[:10], mask[:10]), (x[10:], mask[10:])]}
    advice = GaussNewton(net, kinds[given], y).advice(budget=AMPLE)
    assert any("the inputs, each feature by itself" in s.what for s in advice.suggestions)
    name = "'mask'" if given == "dict" else "1"
    assert f"not tried standardise input {name}: zeros and ones alone, as in a mask" in page(advice)
    new = advice.apply()
    assert (new(**kinds["dict"]) if given == "dict" else new(x, mask)).shape == (24, 1)


@pytest.mark.slow
def test_recurrent_networks_and_attention_are_tried():
    torch.manual_seed(0)
    net, x = recurrent(nn.GRU(2, 8, batch_first=True), 1), 50 + random(20, 6, 2)
    advice = GaussNewton(net, x, x.mean((1, 2))[:, None] - 50).advice(budget=AMPLE)
    assert advice.suggestions and any("orthogonal weights" in what for what in advice.tried)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    net = nn.Sequential(nn.Linear(3, 8), layer, nn.Flatten(), nn.Linear(40, 2))
    with torch.no_grad():
        for p in net.parameters():
            if p.ndim > 1:
                p.mul_(0.02)
    advice = GaussNewton(net, random(12, 5, 3), torch.arange(12) % 2, "cross_entropy").advice(budget=AMPLE)
    assert "weights" in advice.suggestions[0].what and advice.suggestions[0].gain > 2


@pytest.mark.slow
def test_an_optimiser_with_a_state_begins_anew_and_one_that_cannot_is_replaced():
    x, y = uneven()
    net = perceptron(4, hidden=nn.ReLU)
    used = Adam([{"params": net[0].parameters(), "lr": 1e-3}, {"params": net[2].parameters(), "lr": 1e-2}])
    (net(x) - y).square().mean().backward()
    used.step()
    advice = GaussNewton(net, x, y, optimizer=used).advice(budget=AMPLE)
    assert "optimiser Adam has a state: trials begin without it" in page(advice) and advice.suggestions[0].gain > 2

    class Odd(Optimizer):
        def __init__(self, parameters, special):
            super().__init__(parameters, {"lr": special})

        def step(self, closure=None):
            raise NotImplementedError

    advice = GaussNewton(net, x, y, optimizer=Odd(net.parameters(), 0.1)).advice(budget=AMPLE)
    assert "optimiser Odd cannot be made anew: trials are by gradient descent" in page(advice)
    assert advice.suggestions[0].optimizer == "gradient descent"


@pytest.mark.slow
def test_networks_of_tokens_are_advised_by_products():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(9, 6), nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 9))
    with torch.no_grad():
        net[1].weight.mul_(0.01)
    tokens = torch.randint(9, (8, 5))
    g = GaussNewton(net, tokens, (tokens + 1) % 9, "cross_entropy", optimizer="adam")
    found = g.report(budget=AMPLE)
    assert found.suggestions and found.suggestions[0].gain >= 1.25 and found.suggestions[0].what in page(found)
    assert "not tried standardise the inputs: no real numbers: classes, tokens" in page(found)


def test_what_is_refused_is_named_with_the_reason():
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1))
    advice = GaussNewton(net, random(20, 3), random(20, 1), mode="eval").advice(budget=AMPLE)
    (what,) = (what for what in advice.left_out if what.startswith("add batch"))
    assert "drops out in training mode" in advice.left_out[what]


# Bad input


@pytest.mark.bad_input
def test_advice_needs_targets_some_seconds_and_an_optimiser_that_is_known():
    with pytest.raises(ValueError, match="y is missing; a change is tried by training"):
        GaussNewton(nn.Linear(2, 1), random(5, 2)).advice()
    with pytest.raises(ValueError, match="budget is -1; a positive number of seconds"):
        GaussNewton(nn.Linear(2, 1), random(5, 2), random(5, 1)).advice(budget=-1)
    with pytest.raises(ValueError, match="optimizer is 'lion'; 'sgd'"):
        GaussNewton(nn.Linear(2, 1), random(5, 2), random(5, 1), optimizer="lion").advice()


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "x, y, loss, said",
    [
        (random(12, 3), torch.full((12, 2), 4.0), "mse", "targets all are 4: a bias fits them"),
        (random(12, 3), torch.zeros(12).long(), "cross_entropy", "targets all are 0: a bias fits them"),
        (random(12, 3), torch.arange(12) % 2, "cross_entropy", "targets 2 of 4 classes have no sample here"),
        (
            torch.cat([random(12, 2), torch.ones(12, 1)], 1),
            random(12, 2),
            "mse",
            "inputs 1 of 3 features of the inputs",
        ),
        (random(12, 3), random(12, 2), "mse", None),
    ],
)
def test_data_that_tell_little_are_named(x, y, loss, said):
    advice = GaussNewton(perceptron(outputs=4 if loss != "mse" else 2), x, y, loss).advice(budget=5)
    assert (said in page(advice)) if said else not advice.remarks


@pytest.mark.bad_input
def test_a_change_that_fits_at_once_and_a_loss_below_zero_have_goals(monkeypatch):
    monkeypatch.setattr("gnlib.advice.race.MOST_RUN", 12)
    x, y = random(12, 3), random(12, 1)
    fits = GaussNewton(perceptron(), x, torch.zeros(12, 1)).advice(budget=AMPLE)
    assert fits.suggestions[0].what == "zero weights in 2 (Linear)" and fits.suggestions[0].run.losses[0] == 0
    below = GaussNewton(perceptron(), x, y, lambda f, y: (f - y).square().mean() - 9).advice(budget=AMPLE)
    assert -9 < below.runs["no change"].losses[-1] < below.runs["no change"].losses[0] < 0


def test_a_report_travels_without_its_networks(tmp_path):
    x, y = uneven()
    found = gnlib.report(perceptron(4), x, y, budget=AMPLE)
    gnlib.save(found, tmp_path / "report.json")
    again = gnlib.load_result(tmp_path / "report.json")
    assert str(again) == str(found) and again.suggestions[0].gain == found.suggestions[0].gain
    with pytest.raises(ValueError, match="Files keep no networks"):
        again.apply()
