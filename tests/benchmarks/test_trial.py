"""The trial of the advice: its networks, its parts, its criterion, and two tiny networks from end to end."""

import csv
import json
import math
from contextlib import nullcontext

import pytest
import torch
from gnbook.your_own_network.sixty import choices, false_suggestions, speed_up
from torch import nn

from tests.benchmarks.peers.runner import write_table
from tests.benchmarks.trial import one, peers, training
from tests.benchmarks.trial.__main__ import COLUMNS, keep
from tests.benchmarks.trial.cases import Case, parted
from tests.benchmarks.trial.engineer import NAME, engineer
from tests.benchmarks.trial.networks import CASES, PARTS
from tests.benchmarks.trial.runner import Trial
from tests.benchmarks.trial.summary import lines
from tests.benchmarks.trial.training import Run, best_run, first_loss, held_out, train
from tests.gnlib.networks import Whole

NETWORK, OTHER = [*CASES][:2]


def data(scale=1.0, shift=0.0):
    g = torch.Generator().manual_seed(0)
    x = torch.tensor([1.0, 50.0, 0.02]) * torch.randn(48, 3, generator=g) + torch.tensor([0.0, 300.0, 1.0])
    y = (x[:, :1] + x[:, 1:2] / 50).sin()
    return parted(x, scale * y + shift, n=32)


def classes():
    held = data()
    return held._replace(y=(held.y[:, 0] > 0).long(), held_y=(held.held_y[:, 0] > 0).long())


def perceptron(outputs):
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, outputs))


NUMBERS = Case("torch", "perceptron", lambda: perceptron(1), data, "mse")
CLASSES = Case("torch", "perceptron", lambda: perceptron(2), classes, "cross_entropy", prepared=True)


# The networks and their parts


def test_there_are_sixty_networks_of_as_many_kinds_and_those_held_out_are_like_the_others():
    assert [len(cases) for cases in PARTS.values()] == [40, 20] and len(CASES) == 60
    assert len({case.kind for case in CASES.values()}) == 60
    for cases in PARTS.values():
        assert len({case.library for case in cases.values()}) >= 5
        assert sum(case.prepared for case in cases.values()) == 0.3 * len(cases)
        assert len(cases) / 4 <= sum(case.is_regression for case in cases.values()) <= len(cases) / 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_a_network_is_small_and_a_step_of_it_and_of_the_engineers_lowers_nothing_to_nan(name):
    from tests.benchmarks.trial import libraries

    libraries.declare()
    case = CASES[name]
    try:
        held, module = case.data(), case.module(0)
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    assert sum(p.numel() for p in module.parameters()) < 1e6 and len(held.y) <= 100
    for variant in (module, engineer(module, case, held.x, held.y)):
        run = train(case, variant, held, "adam", 1e-3, 0.0, 1)
        assert len(run.losses) == 3 and all(map(math.isfinite, run.losses))
        assert math.isfinite(held_out(case, run.module, held))
    again = case.module(0)
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), again.parameters(), strict=True))


# The criterion


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_the_unit_of_the_targets_changes_neither_losses_nor_steps_of_a_variant_that_standardises_them(optimizer):
    found = []
    for held in (data(), data(scale=1024.0, shift=512.0)):
        variant = engineer(NUMBERS.module(0), NUMBERS, held.x, held.y)
        run, _ = best_run(NUMBERS, variant, held, optimizer, goal=0.1)
        found.append((first_loss(NUMBERS, variant, held), run.rate, run.steps, held_out(NUMBERS, run.module, held)))
    assert found[0] == pytest.approx(found[1], rel=1e-3) and found[0][2] < math.inf


def test_the_loss_of_a_variant_is_in_the_units_of_the_raw_targets():
    held = data(scale=100.0, shift=1000.0)
    variant = engineer(NUMBERS.module(0), NUMBERS, held.x, held.y)
    by_hand = (variant(held.x).detach() - held.y).square().mean() / held.y.var(correction=0)
    assert first_loss(NUMBERS, variant, held) == pytest.approx(float(by_hand), rel=1e-3)
    raw = first_loss(NUMBERS, NUMBERS.module(0), held)  # which has to learn the mean first
    assert raw > 0.5 * float(held.y.square().mean() / held.y.var()) > 10 * first_loss(NUMBERS, variant, held)


def run_of(*losses, goal=0.1):
    return Run(0.1, losses, goal, nn.Identity())


def test_a_run_is_reached_censored_exploded_or_dead():
    assert run_of(1.0, 0.5, 0.1, 0.1).steps == 2 and run_of(0.05, 0.05).steps == 1
    assert run_of(1.0, 0.1, 0.5, 0.1, 0.0).steps == 3  # at the first it was there by chance
    states = [run_of(1.0, *rest).state for rest in ((0.1, 0.1), (0.5,), (float("nan"),), (2e3,), (0.995,))]
    assert states == ["reached", "censored", "exploded", "exploded", "dead"]


def test_the_best_rate_is_that_of_a_search_of_all_rates_and_of_those_beside_the_best(monkeypatch):
    held = data()
    variant = engineer(NUMBERS.module(0), NUMBERS, held.x, held.y)
    for optimizer, rates in training.RATES.items():
        steps_at = lambda rate: train(NUMBERS, variant, held, optimizer, rate, 0.2, training.STEPS).steps  # noqa: E731, B023
        finer, _ = best_run(NUMBERS, variant, held, optimizer, goal=0.2)
        with monkeypatch.context() as patch:
            patch.setattr(training, "BETWEEN", ())
            best, _ = best_run(NUMBERS, variant, held, optimizer, goal=0.2)
        assert best.steps == min(map(steps_at, rates)) < math.inf
        assert finer.steps == steps_at(finer.rate) <= min(steps_at(best.rate * 10**power) for power in (-0.25, 0.25))


# The engineer and the peers


def test_the_engineer_standardises_normalises_and_draws_sensible_weights():
    held = data(scale=10.0, shift=100.0)
    variant = engineer(NUMBERS.module(0), NUMBERS, held.x, held.y)
    seen = []
    variant.module.register_forward_pre_hook(lambda m, args: seen.append(args[0]))
    f = variant(held.x).detach()
    torch.testing.assert_close(seen[0].std(0, correction=0), torch.ones(3), atol=1e-3, rtol=0)
    assert abs(float(f.mean()) - 100) < 20
    assert [name for name, _ in variant.named_modules() if name.endswith(NAME)] == [
        f"module.{i}.{NAME}" for i in (0, 2)
    ]
    assert float(variant.module[2].weight.detach().std()) == pytest.approx((2 / 8) ** 0.5, rel=0.3)
    assert torch.equal(variant.module[4].weight, NUMBERS.module(0)[4].weight)
    other = engineer(NUMBERS.module(0), NUMBERS, held.x, held.y, seed=1)
    assert not torch.equal(variant.module[2].weight, other.module[2].weight)


def test_the_engineer_leaves_integers_masks_and_networks_with_normalisations_alone_but_for_tiny_weights():
    forward = lambda self, ids, x, mask: self.head(self.norm((self.embed(ids) + x) * mask))  # noqa: E731
    net = Whole(forward, embed=nn.Embedding(5, 3), norm=nn.LayerNorm(3), head=nn.Linear(3, 1))
    nn.init.normal_(net.head.weight, std=1e-3)
    x = torch.randint(5, (20,)), 10 + torch.randn(20, 3), torch.ones(20, 1)
    variant = engineer(net, NUMBERS, x, torch.randn(20, 1))
    assert [*variant.inputs] == [1] and not any(name.endswith(NAME) for name, _ in variant.named_modules())
    assert float(variant.module.head.weight.detach().abs().max()) > 0.05


def test_the_factors_of_gradinit_lower_the_loss_after_a_step_and_metainit_the_curvature():
    held = data(scale=5.0)
    plain = NUMBERS.module(0)

    def after(module):
        return train(NUMBERS, module, held, "adam", 1e-3, 0.0, 1).losses[1]

    assert after(peers.gradinit(NUMBERS, plain, held, "adam")) < after(plain)
    norms = [
        [float(p.detach().norm()) for p in module.parameters() if p.ndim > 1]
        for module in (plain, peers.metainit(NUMBERS, plain, held))
    ]
    assert norms[0] != pytest.approx(norms[1], rel=1e-2)


def test_finders_find_a_rate_at_which_the_loss_falls(monkeypatch):
    bowl = [1 - i / 60 for i in range(60)] + [3.0 * i for i in range(40)]
    rates = [10 ** (i / 10) for i in range(100)]
    monkeypatch.setattr(peers, "swept", lambda *_: (rates, bowl))
    assert peers.fastai_rate(NUMBERS, NUMBERS.module(0), data(), "adam") == rates[30 - 1]
    monkeypatch.setattr(peers, "swept", lambda *_: (rates, [1.0] * 20 + [0.5 - i * 1e-3 for i in range(80)]))
    assert peers.lightning_rate(NUMBERS, NUMBERS.module(0), data(), "adam") == pytest.approx(rates[19], rel=0.3)
    monkeypatch.undo()
    found, losses = peers.swept(NUMBERS, NUMBERS.module(0), data(), "sgd", 1e-7, 10.0)
    assert losses[-1] <= 4 * min(losses) and len(found) < 100  # descent explodes on raw features, at any larger rate


# Summary


def row(variant, steps, state=None, **more):
    own = {"network": "a", "seed": 0, "optimizer": "adam", "prepared": 1, "what": "x", "why": ""}
    return own | {"variant": variant, "steps": steps, "state": state or ("reached" if steps else "censored")} | more


def test_a_speed_up_is_exact_or_a_bound_or_unknown():
    assert speed_up(row("v", 20), row("no change", 50)) == (2.5, "exact")
    assert speed_up(row("v", 20), row("no change", None)) == (10.0, "from below")
    assert speed_up(row("v", None), row("no change", 50)) == (0.25, "from above")
    assert math.isnan(speed_up(row("v", None), row("no change", None)).value)
    assert speed_up(row("first suggestion", None, "none"), row("no change", 50)) == (1.0, "exact")
    assert math.isnan(speed_up(row("v", None, "none"), row("no change", 50)).value)
    assert speed_up(row("v", None, "exploded"), row("no change", 50)) == (0.25, "exploded")


def test_the_choice_is_compared_with_the_best_candidate_and_false_suggestions_are_named():
    rows = [row("no change", 60), row("candidate", 20, what="y"), row("candidate", 40), row("first suggestion", 40)]
    assert choices(rows, "adam") == [("a", 2.0)] and false_suggestions(rows, "adam") == ([], 1)
    slow = [row("no change", 60), row("first suggestion", 59)]
    assert false_suggestions(slow, "adam") == ([("a", 0, "x")], 1)
    own = row("first suggestion at its rate", 18)
    assert choices([*rows, own], "adam") == [("a", 0.9)]
    silent = [row("no change", 60), row("candidate", 59), row("first suggestion", None, "none")]
    assert false_suggestions(silent, "adam") == ([], 1) and choices(silent, "adam")[0][1] == pytest.approx(60 / 59)


# From end to end


@pytest.mark.slow
@pytest.mark.parametrize("case", [NUMBERS, CLASSES], ids=["regression", "classification"])
def test_a_tiny_network_from_end_to_end(case, monkeypatch, tmp_path):
    monkeypatch.setattr(peers, "ITERATIONS", 2)
    rows = one.rows_of(case, seeds=(0,), budget=600.0)  # of which a few seconds are taken, on any machine
    names = {r["variant"] for r in rows}
    assert names >= {one.PLAIN, one.ENGINEER, one.FIRST, one.CANDIDATE, one.USUAL, one.FASTAI, one.GRADINIT}
    assert len({r["goal"] for r in rows}) == 1 and not any(r["why"] for r in rows if r["variant"] != one.LIGHTNING)
    first = [r["first_loss"] for r in rows if r["first_loss"] is not None]
    assert rows[0]["goal"] == pytest.approx(0.1 * min(first))
    by = {(r["variant"], r["optimizer"]): r for r in rows if r["variant"] in (one.PLAIN, one.ENGINEER, one.FIRST)}
    assert by[one.ENGINEER, "adam"]["steps"] < (by[one.PLAIN, "adam"]["steps"] or math.inf)  # raw features
    assert by[one.FIRST, "sgd"]["what"] and by[one.FIRST, "sgd"]["report_seconds"] > 0
    text = "\n".join(lines([{"network": "tiny", **r} for r in rows]))
    assert "engineer" in text and "a report:" in text
    write_table(tmp_path / "t.csv", COLUMNS, [{"network": "tiny", "part": "development", **r} for r in rows])
    with (tmp_path / "t.csv").open(newline="") as file:
        assert tuple(csv.DictReader(file).fieldnames) == COLUMNS


STAND_IN = """
import json, pathlib, sys
folder, network = pathlib.Path(sys.argv[1]), sys.argv[2]
(folder / "calls").open("a").write(network + "\\n")
if (folder / "fatal").read_text() == network:
    sys.exit("out of memory")
found = folder / "found" / f"{network}.json"
found.parent.mkdir(exist_ok=True)
found.write_text(json.dumps({"rows": [{"library": "torch", "variant": "no change"}], "seconds": 1.0}))
"""


@pytest.fixture
def trial(tmp_path, monkeypatch):
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    (tmp_path / "fatal").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return Trial(tmp_path, module="stand_in")


def test_what_is_there_is_not_run_again_and_what_is_missing_is(trial):
    assert [*trial.run([NETWORK])] == [NETWORK]
    assert trial.missing([NETWORK, OTHER]) == [OTHER] and [*trial.run([NETWORK, OTHER])] == [OTHER]
    assert (trial.folder / "calls").read_text().split() == [NETWORK, OTHER]
    rows = trial.rows([NETWORK, OTHER])
    assert [row["network"] for row in rows] == [NETWORK, OTHER] and rows[0]["versions"].startswith("torch 2")
    assert {"run_revision", "run_torch", "run_finished"} <= {*rows[0]} <= {*COLUMNS}


def test_a_process_that_dies_or_is_late_leaves_its_reason(trial, tmp_path):
    (trial.folder / "fatal").write_text(NETWORK)
    assert len([*trial.run([NETWORK, OTHER], jobs=2)]) == 2
    assert trial.rows([NETWORK])[0]["why"] == "The process ended with code 1: out of memory"
    late = Trial(tmp_path / "late", module="stand_in", limit=1e-3)
    assert [*late.run([NETWORK])] == [NETWORK]
    assert late.rows([NETWORK])[0]["why"] == "The process was not done after 0.001 seconds."


def test_what_is_kept_of_a_part_is_whole_of_one_revision_and_beside_what_the_table_has(trial, tmp_path, monkeypatch):
    monkeypatch.setattr("tests.benchmarks.trial.__main__.KEPT", tmp_path / "kept.csv")
    parts = {"development": [OTHER], "held-out": [NETWORK]}
    write_table(tmp_path / "kept.csv", COLUMNS, [{"network": name, "part": "held-out"} for name in (NETWORK, OTHER)])
    with pytest.raises(SystemExit, match="1 networks are missing"):
        keep(trial, parts, "held-out")
    path = trial.folder / "rows" / f"{NETWORK}.json"
    path.parent.mkdir()
    for revision, refused in (("abc+changes", pytest.raises(SystemExit, match="changes")), ("abc", nullcontext())):
        path.write_text(json.dumps([{"network": NETWORK, "run_revision": revision}]))
        with refused:
            keep(trial, parts, "held-out")
    with (tmp_path / "kept.csv").open(newline="") as file:
        found = [(row["network"], row["part"], row["run_revision"]) for row in csv.DictReader(file)]
    assert found == [(NETWORK, "held-out", "abc"), (OTHER, "development", "")]
