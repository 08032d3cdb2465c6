"""The numbers in the text of "What predicts training" and its further experiments are those of its kept table."""

from functools import cache
from itertools import product

import numpy as np
import pytest
from gnbook import results
from gnbook.what_predicts_training.correlations import between, pooled, within
from gnbook.what_predicts_training.families import FAMILIES, HELD_OUT, INITIALISATIONS
from gnbook.what_predicts_training.table import arrived, in_order, order, those

from tests.pages.pages import prose, says, words_of

FIRST, FURTHER = "laboratory/what-predicts-training", "laboratory/what-predicts-training-further"
OPTIMIZERS = ("descent", "momentum", "adam")
EARLY = ("MLP, tanh", "ViT", "ResNet")
TEXT = f"{prose(f'notebooks/{FIRST}')} {prose(f'notebooks/{FURTHER}')}"


@cache
def table():
    return results.kept("what-predicts-training")


def trained(optimizer="descent", loss="mse", n=50, **values):
    return those(table(), optimizer=optimizer, loss=loss, n=n, **values)


def correlation(name, statistic, rows):
    return order(rows, names=[name], statistic=statistic).value(name)


def correlations(name, statistic, **values):
    """For each way of training."""
    return [correlation(name, statistic, trained(optimizer, **values)) for optimizer in OPTIMIZERS]


def factors(**values):
    """How many times sooner than forecast networks arrive that do."""
    return np.array([r["forecast_tenth"] / r["steps_tenth"] for r in trained(**values) if r["steps_tenth"] is not None])


def test_what_was_run():
    assert f"{len(table()):,} trainings" in TEXT
    there = {name: len(arrived(trained(name))) / len(trained(name)) for name in ("descent", "adam")}
    assert there["descent"] == pytest.approx(1 / 2, abs=0.02) and there["adam"] == pytest.approx(3 / 4, abs=0.02)
    assert {row["family"] for row in table()} == set(FAMILIES)
    assert {row["initialisation"] for row in table()} == set(INITIALISATIONS)
    assert {row["family"] for row in table() if row["held_out"]} == set(HELD_OUT)


def between_two(template, values):
    """Hold two numbers in the text to the smallest and the largest of these."""
    assert template.format(f"{min(values):.2f}", f"{max(values):.2f}") in TEXT


def test_families_are_ordered_by_kappa_and_the_forecasts():
    both = [correlations(name, between) for name in ("kappa", "forecast")]
    descent, others = [first for first, *_ in both], [value for _, *rest in both for value in rest]
    between_two("have {} to {} under", descent)
    between_two("and {} to {} with", others)
    adam = [values[2] for values in both]
    assert adam == pytest.approx([0.86] * 2, abs=0.005)
    found = {way: order(trained(way), names=["kappa", "forecast"], statistic=between) for way in ("descent", "adam")}
    lows = [found["adam"].interval(name).low for name in ("kappa", "forecast")]
    assert lows == pytest.approx([0.5] * 2, abs=0.025)
    spans = [found[way].interval(name) for name in ("forecast", "kappa") for way in found]
    assert min(span.low for span in spans) > 0.45 and max(span.high for span in spans) > 0.995
    entropy = {name: correlations(name, between, loss="cross_entropy") for name in ("kappa", "forecast")}
    between_two("has {} to {},", entropy["forecast"])
    between_two("number {} to {}.", entropy["kappa"])
    assert max(correlations("initial_loss", between)) < 0.5


def test_initialisations_are_ordered_by_the_loss_at_the_start():
    between_two("has {} to {},", correlations("initial_loss", within))
    forecast = correlations("forecast", within)
    between_two("forecast {} to {},", forecast)
    assert np.abs(correlations("kappa", within)).max() < 0.1


def test_the_lead_of_the_forecast_over_all_networks():
    found = order(trained(), statistic=pooled)
    leads = [found.difference("forecast_kp", name) for name in ("kappa", "initial_loss")]
    assert says(TEXT, "by {} and ... by {}", *leads)
    assert all(lead.low > 0 for lead in leads)
    of_all = {name: found.value(name) for name in found.names}
    assert max(of_all, key=of_all.get) == "forecast_kp"
    assert f"({of_all['te_nas']:.2f} for {of_all['kappa']:.2f} under" in TEXT
    assert abs(found.difference("forecast_kp", "forecast").value) < 0.02
    momentum = order(trained("momentum"), statistic=pooled).difference("forecast_kp", "initial_loss")
    assert momentum.low < 0 < momentum.high


def test_effective_rank_and_what_orders_initialisations_under_cross_entropy():
    found = correlations("effective_rank", pooled, loss="cross_entropy")
    assert "({:.2f}, {:.2f} and {:.2f};".format(*found) in TEXT
    inside = [order(trained(name, loss="cross_entropy"), statistic=within) for name in OPTIMIZERS]
    values = {name: [one.value(name) for one in inside] for name in inside[0].names}
    best = "{:.2f}, {:.2f} and {:.2f}".format(*np.nanmax(list(values.values()), axis=0))
    assert f"has {best} (gradient" in TEXT
    leaders = [max(values, key=lambda name: np.nan_to_num(values[name][i], nan=-1)) for i in range(3)]
    assert len({*leaders}) == 3
    least = np.nanmax(np.min(list(values.values()), axis=1))
    assert f"has more than {least:.2f} for" in TEXT and len(values) == 24
    assert f"has {values['initial_loss'][0]:.2f}." in TEXT


def test_the_share_that_twenty_steps_leave():
    """With the squared error a small share goes with slow learning, with cross-entropy with fast."""
    left = order(trained("adam"), names=["loss_after_20"]).interval("loss_after_20")
    assert f"({left.value:.2f})" in TEXT
    shares = [order(trained(name), names=["loss_after_20"]).interval("loss_after_20") for name in OPTIMIZERS]
    assert max(share.high for share in shares) < 0
    assert min(correlations("loss_after_20", pooled, loss="cross_entropy")) > 0.6
    shown = [[float(word) for word in line[-4:]] for line in words_of(FIRST, "rank correlation with")]
    assert f"has {min(shown[0]):.2f} or" in TEXT
    assert shown[2][1] >= shown[0][1]  # under Adam the loss at the start does as well
    assert [value < 0 for value in shown[-1]] == [True, True, False, False]


def test_one_network_of_each_family():
    def forecast(optimizer, **values):
        some = trained(optimizer, initialisation="default", **values)
        assert len(some) == 12
        return correlation("forecast", pooled, some)

    three = {optimizer: [forecast(optimizer, seed=seed) for seed in range(3)] for optimizer in OPTIMIZERS}
    for optimizer, words in zip(OPTIMIZERS, ("under gradient descent", "under momentum", "under Adam"), strict=True):
        between_two("{} to {} " + words, three[optimizer])
    entropy = [forecast(optimizer, loss="cross_entropy") for optimizer in OPTIMIZERS]
    assert "has {:.2f}, {:.2f} and {:.2f} (one".format(*entropy) in TEXT


def test_twenty_steps_beside_the_forecast():
    """For one network of each architecture, and between families."""

    def after_20(optimizer, **values):
        return correlation("absolute_after_20", pooled, trained(optimizer, initialisation="default", **values))

    three = {optimizer: [after_20(optimizer, seed=seed) for seed in range(3)] for optimizer in OPTIMIZERS}
    assert min(map(min, three.values())) == min(three["adam"]) > 0.6
    entropy = [after_20(optimizer, loss="cross_entropy") for optimizer in OPTIMIZERS]
    assert "at {:.2f}, {:.2f} and {:.2f}.".format(*entropy) in TEXT
    assert min(correlations("absolute_after_20", between, loss="cross_entropy")) > 0.85


def test_how_much_shorter_a_forecast_must_be():
    def shares(*band, column="forecast_tenth", losses=("mse", "cross_entropy")):
        some = [trained(optimizer, loss) for loss in losses for optimizer in OPTIMIZERS]
        return [100 * np.mean(in_order(rows, column, *band)) for rows in some]

    little, some, much, most = (shares(*band) for band in ((1, 1.5), (1.5, 3), (3, 10), (10, np.inf)))
    assert min(most) == min(most[:3])
    assert max(little[3:]) < 60 < min(little[:3]) and max(some) < 95
    assert min(much[3:]) > 90 and min(much[:2]) >= 90 > much[2] and max(some[:3]) < 85 and most[2] > 90
    kappa, forecast = (shares(1, 3, column=name, losses=["mse"])[0] for name in ("kappa", "forecast_tenth"))
    assert 60 < kappa < forecast < 80


def test_networks_arrive_sooner_than_forecast():
    over = {name: factors(optimizer=name) for name in ("descent", "adam")}
    for name, words in (("descent", "under gradient descent"), ("adam", "under Adam")):
        assert f"than {np.median(over[name]):.1f} {words}" in TEXT
    near = np.mean(np.abs(np.log(over["descent"])) < np.log(3))
    assert f"descent {100 * near:.0f} of" in TEXT
    assert round(np.median(over["adam"])) == 5
    slow = [
        factors(family=family, drift=row["drift"])
        for family in EARLY
        for row in trained(family=family)
        if row["drift"] < 1
    ]
    early = np.concatenate(slow)
    assert f"arrive {min(early):.0f} to {max(early):.0f} times" in TEXT


def apart(optimizer, statistic):
    """Over all networks, and among those that arrive."""
    return [order(some, statistic=statistic) for some in (trained(optimizer), arrived(trained(optimizer)))]


def test_what_is_left_between_families_among_those_that_arrive():
    there = {optimizer: apart(optimizer, between)[1] for optimizer in OPTIMIZERS}
    both = [f.value(name) for name in ("kappa", "forecast") for f in there.values()]
    assert says(TEXT, "has {:.2f}, {:.2f} and {:.2f} (gradient ... {:.2f}, {:.2f} and {:.2f}.", *both)
    some = arrived(trained())
    assert len({row["family"] for row in some}) == 10 and f"with {len(some)} networks" in TEXT


def test_how_long_forecasts_are_with_cross_entropy():
    """Below 100 steps mostly right within a factor of three, beyond that always too long."""
    within, least, late = {}, [], []
    for name in OPTIMIZERS:
        rows = trained(name, "cross_entropy")
        assert {row["seed"] for row in rows} == {0} and len(rows) == 72
        of = [(row["forecast_tenth"], row["forecast_tenth"] / row["steps_tenth"]) for row in rows if row["steps_tenth"]]
        within[name] = 100 * np.mean([1 / 3 < over < 3 for steps, over in of if steps < 100])
        least.append(min(over for steps, over in of if steps >= 100))
        late += [name for row in rows if row["steps_tenth"] is None and row["forecast_tenth"] < 100]
    assert late == ["descent", "momentum"] and min(within.values()) > 80 and min(least) > 2
    rows = arrived([row for row in trained("adam", "cross_entropy") if 30 <= row["forecast_tenth"] < 100])
    near = [row for row in rows if 1 / 3 < row["forecast_tenth"] / row["steps_tenth"] < 3]
    assert says(TEXT, f"of {len(rows)} forecasts ... only {len(near)} are")


def test_the_two_networks_that_come_first():
    """The one with the smaller condition number is slower, and the other two numbers say so."""
    a, b = ([float(word.replace(",", "")) for word in line[1:]] for line in words_of(FIRST, "three numbers known"))
    assert 6.5 < b[0] / a[0] < 7 and 2.8 < a[3] / b[3] < 3.3
    assert 180 < a[1] / b[1] < 250
    assert b[1] < a[1] and b[2] < a[2]
    assert says(TEXT, f"after {a[3]:.0f} steps; ... after {b[3]:.0f}.")


def test_short_forecasts_are_roughly_right_and_long_ones_too_long():
    rates, long, never, short = [], [], 0, {"mse": [], "cross_entropy": []}
    for loss, optimizer in product(short, OPTIMIZERS):
        rows = [row | {"forecast": row["forecast_tenth"] or np.inf} for row in trained(optimizer, loss)]
        few = [row for row in rows if row["forecast"] < 100]
        short[loss].append(len(few) / len(rows))
        there = [row["forecast"] / row["steps_tenth"] for row in arrived(few)]
        never += len(few) - len(there)
        rates.append(100 * np.mean(np.abs(np.log(there)) < np.log(3)))
        long.append(np.mean([row["forecast"] > row["steps_tenth"] for row in arrived(rows) if row not in few]))
    assert f"[{min(rates):.0f} to {max(rates):.0f} %]" in TEXT and min(long) > 0.9
    trainings = sum(
        round(share * count) for loss, count in (("mse", 216), ("cross_entropy", 72)) for share in short[loss]
    )
    assert f"Of {trainings} trainings" in TEXT and never == 3
    assert np.mean(short["mse"]) == pytest.approx(1 / 7, abs=0.01)
    assert np.mean(short["cross_entropy"]) == pytest.approx(5 / 6, abs=0.01)
