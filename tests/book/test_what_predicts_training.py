"""The numbers in the text of "What predicts training" are those of its kept table."""

from functools import cache

import numpy as np
import pytest

from gnlib.chapters import results
from gnlib.chapters.what_predicts_training.correlations import between, partial, pooled, within
from gnlib.chapters.what_predicts_training.families import FAMILIES, HELD_OUT, INITIALISATIONS
from gnlib.chapters.what_predicts_training.table import arrived, in_order, order, those
from tests.book.pages import prose

OPTIMIZERS = ("descent", "momentum", "adam")
EARLY = ("MLP, tanh", "ViT", "ResNet")


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


@pytest.fixture(scope="module")
def text():
    return prose("notebooks/what-predicts-training")


def test_what_was_run(text):
    assert f"{len(table()):,} trainings" in text
    runs = {row["run_name"]: row["run_seconds"] for row in table()}
    each = sum(runs.values()) / len(table())
    assert f"takes some {each:.0f} seconds, predictors included" in text
    networks = {}
    for row in table():
        network = tuple(row[key] for key in ("n", "loss", "family", "initialisation", "seed"))
        networks.setdefault(network, set()).add(row["forecast_tenth"])
    assert "**The forecast is always that of gradient descent**" in text
    assert all(len(forecasts) == 1 for forecasts in networks.values())
    assert {row["family"] for row in table()} == set(FAMILIES)
    assert {row["initialisation"] for row in table()} == set(INITIALISATIONS)
    assert {row["family"] for row in table() if row["held_out"]} == set(HELD_OUT)
    assert "each at the best of some six rates" in text and 5.5 < np.mean([row["rates"] for row in table()]) < 6.5


def test_most_trainings_are_on_fifty_images():
    assert np.mean([row["n"] == 50 for row in table()]) > 0.8


def test_which_networks_arrive(text):
    held_out = {family: trained(family=family) for family in HELD_OUT}
    arrived = {family: np.mean([row["steps_tenth"] is not None for row in rows]) for family, rows in held_out.items()}
    assert arrived.pop("CNN, BatchNorm") == 1 and max(arrived.values()) < 0.1
    assert "all those with BatchNorm arrive and hardly any other" in text
    many = {name: [r["initialisation"] for r in trained(name, n=1000) if r["steps_tenth"]] for name in OPTIMIZERS}
    assert many == {"descent": [], "momentum": [], "adam": ["default"] * 3} and len(trained("adam", n=1000)) == 9
    assert "On 1,000 images three of nine networks get to this goal within 400 steps, by Adam, those that" in text


def between_two(text, template, values):
    """Hold two numbers in the text to the smallest and the largest of these."""
    assert template.format(f"{min(values):.2f}", f"{max(values):.2f}") in text


def test_families_are_ordered_by_kappa_and_the_forecasts(text):
    both = [correlations(name, between) for name in ("kappa", "forecast")]
    descent, others = [first for first, *_ in both], [value for _, *rest in both for value in rest]
    between_two(text, "the forecast have {} to {} under gradient descent", descent)
    between_two(text, "descent, and {} to {} with momentum and Adam", others)
    between_two(text, "$\\kappa$: {} to {} by gradient descent, 0.86 by Adam;", descent)
    scaled = correlations("forecast_kp", between)
    between_two(text, "both forecasts have {} to {} with momentum and Adam", [*others, *scaled[1:]])
    adam = [values[2] for values in both]
    assert adam == pytest.approx([0.86] * 2, abs=0.005) and "the intervals of the 0.86 begin at about 0.5" in text
    found = {way: order(trained(way), names=["kappa", "forecast"], statistic=between) for way in ("descent", "adam")}
    said = (
        "| forecast: {} under gradient descent, {} under Adam; "
        "[condition number](gauss-newton.md) $\\kappa$: {} and {};"
    )
    lows = [found["adam"].interval(name).low for name in ("kappa", "forecast")]
    assert lows == pytest.approx([0.5] * 2, abs=0.025)
    assert said.format(*(found[way].interval(name) for name in ("forecast", "kappa") for way in found)) in text
    entropy = {name: correlations(name, between, loss="cross_entropy") for name in ("kappa", "forecast")}
    between_two(text, "forecast: {} to {}; condition", entropy["forecast"])
    between_two(text, "| means over initialisations: the forecast ({} to {}), or", entropy["forecast"])
    between_two(text, "condition number: {} to {} |", entropy["kappa"])
    assert max(correlations("initial_loss", between)) < 0.5


def test_initialisations_are_ordered_by_the_loss_at_the_start(text):
    between_two(text, "| loss at the start: {} to {}; forecast: 0", correlations("initial_loss", within))
    assert "; condition number: about 0 |" in text and np.abs(correlations("kappa", within)).max() < 0.1
    assert min(correlations("absolute_after_20", within)) > 0.6 and max(correlations("zico", within)) < -0.1
    assert np.abs([correlations(name, within, loss="cross_entropy") for name in ("kappa", "forecast")]).max() < 0.55
    assert -0.35 < min(correlations("chi_1", within)) < max(correlations("chi_1", within)) < -0.2


def test_what_small_numbers_order(text):
    over_all, inside = (correlations("chi_1", statistic) for statistic in (pooled, within))
    assert f"{max(over_all):.2f} to {min(over_all):.2f} over all networks" in text and min(inside) > -0.35
    assert f"so would the loss at the start ({correlation('initial_loss', pooled, trained('adam')):.2f})" in text
    late = [order(trained(name), "1e-4").value("initial_loss") for name in ("momentum", "adam")]
    assert "at 0.0001, by momentum and Adam, it has 0.4 again" in text and late == pytest.approx([0.4] * 2, abs=0.02)
    assert np.abs([order(trained(name), "1e-3").value("initial_loss") for name in OPTIMIZERS]).max() < 0.1


def test_beside_the_loss_at_the_start_kappa_is_worth_as_much():
    beyond = {name: correlations(name, partial) for name in ("kappa", "forecast", "forecast_kp")}
    assert np.min(np.subtract(beyond["kappa"], beyond["forecast"])) > -0.01
    assert np.min(np.subtract(beyond["kappa"], beyond["forecast_kp"])) > -0.01


def test_the_lead_of_the_forecast_over_all_networks(text):
    found = order(trained(), statistic=pooled)
    leads = [found.difference("forecast_kp", name) for name in ("kappa", "initial_loss")]
    assert "leads the condition number by {} and the loss at the start by {}".format(*leads) in text
    assert all(lead.low > 0 for lead in leads)
    of_all = {name: found.value(name) for name in found.names}
    assert max(of_all, key=of_all.get) == "forecast_kp"
    assert f"| forecast: {of_all['forecast']:.2f} under gradient descent" in text
    assert "TE-NAS" in text and f"({of_all['te_nas']:.2f} for {of_all['kappa']:.2f} under gradient descent)" in text
    assert abs(found.difference("forecast_kp", "forecast").value) < 0.02
    momentum = order(trained("momentum"), statistic=pooled).difference("forecast_kp", "initial_loss")
    assert momentum.low < 0 < momentum.high


def test_cross_entropy(text):
    assert "the forecast orders networks with a correlation of about 0.9" in text and "follows at about 0.8" in text
    assert correlations("forecast", pooled, loss="cross_entropy") == pytest.approx([0.9] * 3, abs=0.05)
    assert correlations("kappa", pooled, loss="cross_entropy") == pytest.approx([0.8] * 3, abs=0.07)
    assert correlations("effective_rank", pooled, loss="cross_entropy") == pytest.approx([0.9] * 3, abs=0.05)
    real, foretold = (correlations(name, between, loss="cross_entropy") for name in ("absolute_after_20", "forecast"))
    assert "means over all initialisations, twenty steps do as well with cross-entropy" in text
    assert np.min(np.subtract(real, foretold)) > -0.02  # twenty real steps order architectures as well
    adam = trained("adam", loss="cross_entropy")
    assert f"the choice for Adam has {correlation('loss_after_20', pooled, adam):.2f}" in text
    assert "The loss at the start says nothing under gradient descent and momentum" in text
    assert np.abs(correlations("initial_loss", pooled, loss="cross_entropy")[:2]).max() < 0.15
    assert f"under Adam ({correlation('initial_loss', pooled, adam):.2f}, one seed)" in text


def test_effective_rank_and_what_orders_initialisations_under_cross_entropy(text):
    found = correlations("effective_rank", pooled, loss="cross_entropy")
    assert "({:.2f}, {:.2f} and {:.2f}; seen afterwards)".format(*found) in text
    inside = [order(trained(name, loss="cross_entropy"), statistic=within) for name in OPTIMIZERS]
    values = {name: [one.value(name) for one in inside] for name in inside[0].names}
    best = "{:.2f}, {:.2f} and {:.2f}".format(*np.nanmax(list(values.values()), axis=0))
    assert f"The best number has {best} (gradient descent, momentum, Adam), another one each time" in text
    leaders = [max(values, key=lambda name: np.nan_to_num(values[name][i], nan=-1)) for i in range(3)]
    assert len({*leaders}) == 3
    least = np.nanmax(np.min(list(values.values()), axis=1))
    assert f"none has more than {least:.2f} for all three" in text and f"no number above {least:.2f} for all" in text
    between_two(text, "Within families the forecast has {} to {}, where", values["forecast"])
    between_two(text, "condition number: about 0 | forecast: {} to {}; no number", values["forecast"])
    start = values["initial_loss"][0]
    assert f"The loss at the start has {start:.2f} under gradient descent: there networks that start *higher*" in text


def test_what_forecasts_have_within_families_under_the_squared_error(text):
    for words in ("The forecast has {} to {}.", "where it had {} to {} with", "0.90; forecast: {} to {}; condition"):
        between_two(text, words, correlations("forecast", within))
    left = correlation("loss_after_20", pooled, trained("adam"))
    assert f"that twenty steps leave orders networks backwards with the squared error ({left:.2f}), and" in text
    right = correlation("loss_after_20", pooled, trained("adam", loss="cross_entropy"))
    assert f"and forwards with cross-entropy ({right:.2f})" in text


def test_one_network_of_each_family(text):
    def forecast(optimizer, **values):
        some = trained(optimizer, initialisation="default", **values)
        assert len(some) == 12
        return correlation("forecast", pooled, some)

    three = {optimizer: [forecast(optimizer, seed=seed) for seed in range(3)] for optimizer in OPTIMIZERS}
    for optimizer, words in zip(OPTIMIZERS, ("under gradient descent", "under momentum", "under Adam"), strict=True):
        between_two(text, "{} to {} " + words, three[optimizer])
    entropy = [forecast(optimizer, loss="cross_entropy") for optimizer in OPTIMIZERS]
    assert "it has {:.2f}, {:.2f} and {:.2f} (one seed)".format(*entropy) in text


def test_how_far_ahead_the_code_for_ones_own_network_looks(text):
    found = [row["forecast_tenth"] for row in trained("descent")]
    assert text.count("10_000") == 2 and "10,000 means that the goal is not reached" in text
    longer = sum(steps > 10_000 for steps in found)
    assert f"{longer} of the {len(found)} forecasts of the trial are longer" in text


def test_twenty_steps_beside_the_forecast(text):
    """For one network of each architecture, and between families."""

    def after_20(optimizer, **values):
        return correlation("absolute_after_20", pooled, trained(optimizer, initialisation="default", **values))

    three = {optimizer: [after_20(optimizer, seed=seed) for seed in range(3)] for optimizer in OPTIMIZERS}
    between_two(text, "by Adam with the squared error, at {} to {}.", three["adam"])
    between_two(text, "gradient descent with the squared error their loss has {} to {}, and", three["descent"])
    between_two(text, "and under momentum {} to {}.", three["momentum"])
    entropy = [after_20(optimizer, loss="cross_entropy") for optimizer in OPTIMIZERS]
    assert "less well with cross-entropy, at {:.2f}, {:.2f} and {:.2f}, and".format(*entropy) in text
    between_two(text, "twenty steps {} to {}) |", entropy)
    alone = [
        correlation("forecast", pooled, trained(optimizer, "cross_entropy", initialisation="default"))
        for optimizer in OPTIMIZERS
    ]
    between_two(text, "one network of each: the forecast ({} to {};", alone)
    real, foretold = (correlations(name, between, loss="cross_entropy") for name in ("absolute_after_20", "forecast"))
    between_two(text, "the loss after twenty real steps ({} to {}), which is cheaper", real)
    said = "with cross-entropy: {:.2f}, {:.2f} and {:.2f}, where the forecast has {:.2f}, {:.2f} and {:.2f}."
    assert said.format(*real, *foretold) in text
    step = [row["step_seconds"] for row in results.kept("design")]
    assert "some tenths of a second" in text and 0.1 < 20 * np.median(step) < 0.5


def test_how_much_shorter_a_forecast_must_be(text):
    def shares(*band, column="forecast_tenth", losses=("mse", "cross_entropy")):
        some = [trained(optimizer, loss) for loss in losses for optimizer in OPTIMIZERS]
        return [100 * np.mean(in_order(rows, column, *band)) for rows in some]

    little, some, much, most = (shares(*band) for band in ((1, 1.5), (1.5, 3), (3, 10), (10, np.inf)))
    assert f"the faster one in at least {min(most):.0f} of 100 pairs" in text
    assert f"less than 1.5 times: in {min(little[:3]):.0f} to {max(little[:3]):.0f} |" in text
    assert f"ten times: in {min(most[3:]):.0f} of 100; less than 1.5 times: in {min(little[3:]):.0f} to" in text
    assert f"to {max(little[3:]):.0f}, where a coin has 50" in text and min(most) == min(most[:3])
    assert max(little[3:]) < 60 < min(little[:3]) and max(some) < 95
    assert "right about nine times of ten from a factor of 1.5 on (one seed)" in text and 87 < min(some[3:])
    assert "With the squared error it takes a factor of three, and with Adam ten." in text
    assert min(much[3:]) > 90 and min(much[:2]) >= 90 > much[2] and max(some[:3]) < 85 and most[2] > 90
    kappa, forecast = (shares(1, 3, column=name, losses=["mse"])[0] for name in ("kappa", "forecast_tenth"))
    assert (
        f"under 3, is right in {kappa:.0f} of 100 pairs under gradient descent; the forecast in {forecast:.0f}" in text
    )


def test_goals(text):
    early = [order(trained(name), goal).value("initial_loss") for name in OPTIMIZERS for goal in ("1e-1", "1e-2")]
    assert "Goals of 0.1 and 0.01 of the start turn the order of the initial loss around" in text and max(early) < -0.35
    late = {name: order(trained(name), "1e-4") for name in OPTIMIZERS}
    caught = [late[name].value("kappa") - late[name].value("forecast_kp") for name in ("descent", "adam")]
    assert np.abs(caught).max() < 0.07 and max(late["momentum"].value(name) for name in ("kappa", "forecast_kp")) < 0.25


def test_networks_arrive_sooner_than_forecast(text):
    over = {name: factors(optimizer=name) for name in ("descent", "adam")}
    for name, words in (("descent", "under gradient descent"), ("adam", "under Adam")):
        assert f"by more than {np.median(over[name]):.1f} {words}" in text
    kp = {
        name: np.array([r["forecast_kp_tenth"] / r["steps_tenth"] for r in trained(name) if r["steps_tenth"]])
        for name in ("descent", "adam")
    }
    said = "too large by more than {:.1f} under gradient descent, and by more than {:.1f} under Adam. Between"
    assert said.format(*(np.median(some) for some in kp.values())) in text
    assert "Three of four scaled forecasts are right within" in text
    assert np.mean(np.abs(np.log(kp["descent"])) < np.log(3)) == pytest.approx(3 / 4, abs=0.02)
    near = np.mean(np.abs(np.log(over["descent"])) < np.log(3))
    assert f"By gradient descent {100 * near:.0f} of 100 forecasts are right within a factor of three." in text
    assert "By Adam the one in the middle is five times too large" in text and round(np.median(over["adam"])) == 5
    most = np.mean(over["adam"] > 20)
    assert "a quarter are more than twenty times too large" in text and most == pytest.approx(1 / 4, abs=0.03)
    moving = [row for row in trained() if row["steps_tenth"] is not None and row["drift"] > 1]
    right = np.abs(np.log([row["forecast_tenth"] / row["steps_tenth"] for row in moving])) < np.log(3)
    assert "for two networks out of three where the drift is above 1" in text and abs(np.mean(right) - 2 / 3) < 0.05
    slow = [
        factors(family=family, drift=row["drift"])
        for family in EARLY
        for row in trained(family=family)
        if row["drift"] < 1
    ]
    early = np.concatenate(slow)
    assert f"they arrive {min(early):.0f} to {max(early):.0f} times sooner than forecast" in text


def test_the_best_rate(text):
    best = [row["rate_tenth"] * row["largest"] / 2 for row in trained() if row["steps_tenth"] is not None]
    assert "The best rate is about twice the largest stable one" in text and 1.75 < np.median(best) < 2.5


def apart(optimizer, statistic):
    """Over all networks, and among those that arrive."""
    return [order(some, statistic=statistic) for some in (trained(optimizer), arrived(trained(optimizer)))]


def test_what_is_left_within_families_among_those_that_arrive(text):
    there = [apart(optimizer, within)[1] for optimizer in OPTIMIZERS]
    between_two(text, "it is the same: {} to {} for the loss at the start", [f.value("initial_loss") for f in there])
    between_two(text, ", {} to {} for the condition number. The forecast has", [f.value("kappa") for f in there])
    between_two(
        text, "The forecast has less there with momentum and Adam, {} to {}.", [f.value("forecast") for f in there[1:]]
    )


def test_what_is_left_between_families_among_those_that_arrive(text):
    there = {optimizer: apart(optimizer, between)[1] for optimizer in OPTIMIZERS}
    three = "{:.2f}, {:.2f} and {:.2f}"
    kappa, forecast = (three.format(*(f.value(name) for f in there.values())) for name in ("kappa", "forecast"))
    assert f"the condition number has {kappa} (gradient descent, momentum, Adam), and the forecast {forecast}." in text
    some = arrived(trained())
    assert len({row["family"] for row in some}) == 10 and f"ten families are left, with {len(some)} networks" in text
    assert f"the interval of the condition number begins at {there['descent'].interval('kappa').low:.2f}" in text
    both = [[found.value("absolute_after_20") for found in apart(name, between)] for name in ("descent", "momentum")]
    before, after = ("{:.2f} and {:.2f}".format(*some) for some in zip(*both, strict=True))
    assert (
        f"The loss itself has {before} between families under gradient descent and momentum, and {after} among" in text
    )
    shares = [found.value("loss_after_20") for found in apart("descent", between)]
    assert "The share has {:.2f} under gradient descent, and {:.2f} among those that arrive.".format(*shares) in text
    three_each = [found.value(name) for found in there.values() for name in ("kappa", "forecast", "forecast_kp")]
    between_two(text, "among those that reach the goal {} to {}, with", three_each)
    lows = [f.interval(name).low for f in there.values() for name in ("kappa", "forecast")]
    assert f"with intervals from {min(lows):.2f} |" in text
    assert "all networks of the twelve families: the intervals of the loss at the start include zero" in text
    for found in (apart(optimizer, between)[0].interval("initial_loss") for optimizer in OPTIMIZERS):
        assert found.low < 0 < found.high


def test_twice_the_images(text):
    def key(row):
        return row["family"], row["initialisation"], row["seed"]

    more = trained(n=100)
    same = [row for row in trained() if key(row) in {*map(key, more)}]
    assert len(same) == len(more) == 60 and len({row["family"] for row in more}) == 10
    kappa, forecast = ([correlation(name, between, some) for some in (same, more)] for name in ("kappa", "forecast"))
    assert min(kappa + forecast) > 0.8 and np.abs(np.diff([kappa, forecast])).max() < 0.1
    turned = [correlation("absolute_after_20", between, some) for some in (same, more)]
    assert "of ten families it goes from {:.2f} to {:.2f}".format(*turned) in text


def test_how_long_forecasts_are_with_cross_entropy(text):
    """Below 100 steps mostly right within a factor of three, beyond that always too long."""
    within, least, late = {}, [], []
    for name in OPTIMIZERS:
        rows = trained(name, "cross_entropy")
        assert {row["seed"] for row in rows} == {0} and len(rows) == 72
        of = [(row["forecast_tenth"], row["forecast_tenth"] / row["steps_tenth"]) for row in rows if row["steps_tenth"]]
        within[name] = 100 * np.mean([1 / 3 < over < 3 for steps, over in of if steps < 100])
        least.append(min(over for steps, over in of if steps >= 100))
        late += [(name, row) for row in rows if row["steps_tenth"] is None and row["forecast_tenth"] < 100]
    first, second, third = (f"{within[name]:.0f} %" for name in OPTIMIZERS)
    assert (
        f"within a factor of three ({first} by gradient descent, {third} by Adam); longer ones are too long |" in text
    )
    assert f"three: {first} under gradient descent, {second} under momentum, {third} under Adam; all longer" in text
    assert f"too long, by {min(least):.1f} times or more. Two forecasts below 100 are of trainings that" in text
    assert [name for name, _ in late] == ["descent", "momentum"]
    (plain,) = (row for name, row in late if name == "descent")
    assert (plain["family"], plain["initialisation"], round(plain["forecast_tenth"])) == ("CNN", "default", 57)
    assert "the circle at 57 is the plain CNN by gradient descent" in text
