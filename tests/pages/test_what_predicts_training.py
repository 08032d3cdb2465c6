"""The numbers in the text of "What predicts training" and its further experiments are those of its kept table."""

from functools import cache
from itertools import product

import numpy as np
import pytest
from gnbook import results
from gnbook.what_predicts_training.correlations import between, partial, pooled, within
from gnbook.what_predicts_training.families import FAMILIES, HELD_OUT, INITIALISATIONS
from gnbook.what_predicts_training.table import arrived, in_order, order, those

from tests.pages.pages import prose, slider, words_of

FIRST, FURTHER = "what-predicts-training", "what-predicts-training-further"
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
def chapter():
    return prose("notebooks/what-predicts-training")


@pytest.fixture(scope="module")
def text(chapter):
    """Of both pages."""
    return chapter + " " + prose("notebooks/what-predicts-training-further")


def test_what_was_run(text):
    assert f"{len(table()):,} trainings" in text
    runs = {row["run_name"]: row["run_seconds"] for row in table()}
    each = sum(runs.values()) / len(table())
    assert f"some {each:.0f} seconds," in text
    there = {name: len(arrived(trained(name))) / len(trained(name)) for name in ("descent", "adam")}
    assert there["descent"] == pytest.approx(1 / 2, abs=0.02) and there["adam"] == pytest.approx(3 / 4, abs=0.02)
    networks = {}
    for row in table():
        network = tuple(row[key] for key in ("n", "loss", "family", "initialisation", "seed"))
        networks.setdefault(network, set()).add(row["forecast_tenth"])
    assert all(len(forecasts) == 1 for forecasts in networks.values())
    assert {row["family"] for row in table()} == set(FAMILIES)
    assert {row["initialisation"] for row in table()} == set(INITIALISATIONS)
    assert {row["family"] for row in table() if row["held_out"]} == set(HELD_OUT)
    assert 5.5 < np.mean([row["rates"] for row in table()]) < 6.5


def test_most_trainings_are_on_fifty_images():
    assert np.mean([row["n"] == 50 for row in table()]) > 0.8


def test_which_networks_arrive():
    held_out = {family: trained(family=family) for family in HELD_OUT}
    arrived = {family: np.mean([row["steps_tenth"] is not None for row in rows]) for family, rows in held_out.items()}
    assert arrived.pop("CNN, BatchNorm") == 1 and max(arrived.values()) < 0.1
    many = {name: [r["initialisation"] for r in trained(name, n=1000) if r["steps_tenth"]] for name in OPTIMIZERS}
    assert many == {"descent": [], "momentum": [], "adam": ["default"] * 3} and len(trained("adam", n=1000)) == 9


def between_two(text, template, values):
    """Hold two numbers in the text to the smallest and the largest of these."""
    assert template.format(f"{min(values):.2f}", f"{max(values):.2f}") in text


def test_families_are_ordered_by_kappa_and_the_forecasts(text):
    both = [correlations(name, between) for name in ("kappa", "forecast")]
    descent, others = [first for first, *_ in both], [value for _, *rest in both for value in rest]
    between_two(text, "have {} to {} under", descent)
    between_two(text, "and {} to {} with", others)
    scaled = correlations("forecast_kp", between)
    between_two(text, "have {} to {} with", [*others, *scaled[1:]])
    adam = [values[2] for values in both]
    assert adam == pytest.approx([0.86] * 2, abs=0.005)
    found = {way: order(trained(way), names=["kappa", "forecast"], statistic=between) for way in ("descent", "adam")}
    said = "forecast: {} under gradient descent, {} under Adam; condition number: {} and {};"
    lows = [found["adam"].interval(name).low for name in ("kappa", "forecast")]
    assert lows == pytest.approx([0.5] * 2, abs=0.025)
    assert said.format(*(found[way].interval(name) for name in ("forecast", "kappa") for way in found)) in text
    entropy = {name: correlations(name, between, loss="cross_entropy") for name in ("kappa", "forecast")}
    between_two(text, "forecast: {} to {};", entropy["forecast"])
    between_two(text, "has {} to {},", entropy["forecast"])
    for words in ("and the condition number {} to {}. The", "condition number: {} to {}; loss"):
        between_two(text, words, entropy["kappa"])
    assert max(correlations("initial_loss", between)) < 0.5


def test_initialisations_are_ordered_by_the_loss_at_the_start(text):
    between_two(text, "has {} to {},", correlations("initial_loss", within))
    forecast = correlations("forecast", within)
    between_two(text, "forecast {} to {},", forecast)
    between_two(text, "start: {} to {};", correlations("initial_loss", within))
    assert np.abs(correlations("kappa", within)).max() < 0.1
    assert min(correlations("absolute_after_20", within)) > 0.6 and max(correlations("zico", within)) < -0.1
    assert np.abs([correlations(name, within, loss="cross_entropy") for name in ("kappa", "forecast")]).max() < 0.55
    assert -0.35 < min(correlations("chi_1", within)) < max(correlations("chi_1", within)) < -0.2


def test_what_small_numbers_order(text):
    over_all, inside = (correlations("chi_1", statistic) for statistic in (pooled, within))
    assert f"{max(over_all):.2f} to {min(over_all):.2f} over" in text and min(inside) > -0.35
    assert f"({correlation('initial_loss', pooled, trained('adam')):.2f})" in text
    late = [order(trained(name), "1e-4").value("initial_loss") for name in ("momentum", "adam")]
    assert late == pytest.approx([0.4] * 2, abs=0.02)
    assert np.abs([order(trained(name), "1e-3").value("initial_loss") for name in OPTIMIZERS]).max() < 0.1


def test_beside_the_loss_at_the_start_kappa_is_worth_as_much():
    beyond = {name: correlations(name, partial) for name in ("kappa", "forecast", "forecast_kp")}
    assert np.min(np.subtract(beyond["kappa"], beyond["forecast"])) > -0.01
    assert np.min(np.subtract(beyond["kappa"], beyond["forecast_kp"])) > -0.01


def test_the_lead_of_the_forecast_over_all_networks(text):
    found = order(trained(), statistic=pooled)
    leads = [found.difference("forecast_kp", name) for name in ("kappa", "initial_loss")]
    assert "by {} and the loss at the start by {}".format(*leads) in text
    assert all(lead.low > 0 for lead in leads)
    of_all = {name: found.value(name) for name in found.names}
    assert max(of_all, key=of_all.get) == "forecast_kp"
    assert f"forecast: {of_all['forecast']:.2f} under" in text
    assert f"({of_all['te_nas']:.2f} for {of_all['kappa']:.2f} under" in text
    assert abs(found.difference("forecast_kp", "forecast").value) < 0.02
    momentum = order(trained("momentum"), statistic=pooled).difference("forecast_kp", "initial_loss")
    assert momentum.low < 0 < momentum.high


def test_cross_entropy(text):
    assert correlations("forecast", pooled, loss="cross_entropy") == pytest.approx([0.9] * 3, abs=0.05)
    assert correlations("kappa", pooled, loss="cross_entropy") == pytest.approx([0.8] * 3, abs=0.07)
    assert correlations("effective_rank", pooled, loss="cross_entropy") == pytest.approx([0.9] * 3, abs=0.05)
    real, foretold = (correlations(name, between, loss="cross_entropy") for name in ("absolute_after_20", "forecast"))
    assert np.min(np.subtract(real, foretold)) > -0.02  # twenty real steps order architectures as well
    adam = trained("adam", loss="cross_entropy")
    assert f"has {correlation('loss_after_20', pooled, adam):.2f}" in text
    assert np.abs(correlations("initial_loss", pooled, loss="cross_entropy")[:2]).max() < 0.15
    assert f"({correlation('initial_loss', pooled, adam):.2f}," in text


def test_effective_rank_and_what_orders_initialisations_under_cross_entropy(text):
    found = correlations("effective_rank", pooled, loss="cross_entropy")
    assert "({:.2f}, {:.2f} and {:.2f};".format(*found) in text
    inside = [order(trained(name, loss="cross_entropy"), statistic=within) for name in OPTIMIZERS]
    values = {name: [one.value(name) for one in inside] for name in inside[0].names}
    best = "{:.2f}, {:.2f} and {:.2f}".format(*np.nanmax(list(values.values()), axis=0))
    assert f"has {best} (gradient" in text
    leaders = [max(values, key=lambda name: np.nan_to_num(values[name][i], nan=-1)) for i in range(3)]
    assert len({*leaders}) == 3
    least = np.nanmax(np.min(list(values.values()), axis=1))
    assert f"none has more than {least:.2f} for" in text and f"above {least:.2f} for" in text
    assert f"dozen has more than {least:.2f} for" in text
    assert len(values) == 24
    between_two(text, "has {} to {},", values["forecast"])
    between_two(text, "forecast: {} to {};", values["forecast"])
    start = values["initial_loss"][0]
    assert f"has {start:.2f} under" in text
    assert f"has {start:.2f}:" in text


def test_what_forecasts_have_within_families_under_the_squared_error(text):
    for words in ("where it had {} to {} with", "0.90; forecast: {} to {}; condition"):
        between_two(text, words, correlations("forecast", within))


def test_the_share_that_twenty_steps_leave(text):
    """With the squared error a small share goes with slow learning, with cross-entropy with fast."""
    left = order(trained("adam"), names=["loss_after_20"]).interval("loss_after_20")
    assert f"({left.value:.2f})" in text
    shares = [order(trained(name), names=["loss_after_20"]).interval("loss_after_20") for name in OPTIMIZERS]
    assert max(share.high for share in shares) < 0
    assert min(correlations("loss_after_20", pooled, loss="cross_entropy")) > 0.6
    shown = [[float(word) for word in line[-4:]] for line in words_of(FIRST, "rank correlation with")]
    assert f"has {min(shown[0]):.2f} or" in text
    assert shown[2][1] >= shown[0][1]  # under Adam the loss at the start does as well
    assert [value < 0 for value in shown[-1]] == [True, True, False, False]


def test_one_network_of_each_family(text):
    def forecast(optimizer, **values):
        some = trained(optimizer, initialisation="default", **values)
        assert len(some) == 12
        return correlation("forecast", pooled, some)

    three = {optimizer: [forecast(optimizer, seed=seed) for seed in range(3)] for optimizer in OPTIMIZERS}
    for optimizer, words in zip(OPTIMIZERS, ("under gradient descent", "under momentum", "under Adam"), strict=True):
        between_two(text, "{} to {} " + words, three[optimizer])
    entropy = [forecast(optimizer, loss="cross_entropy") for optimizer in OPTIMIZERS]
    assert "has {:.2f}, {:.2f} and {:.2f} (one".format(*entropy) in text
    every = [*np.ravel([*three.values()]), *entropy]
    between_two(text, "[{} to {}](what-predicts-training-further.md#one-network", every)


def test_how_far_ahead_the_code_for_ones_own_network_looks(text):
    found = [row["forecast_tenth"] for row in trained("descent")]
    longer = sum(steps > 10_000 for steps in found)
    assert f"{longer} of the {len(found)} forecasts" in text


def test_twenty_steps_beside_the_forecast(text):
    """For one network of each architecture, and between families."""

    def after_20(optimizer, **values):
        return correlation("absolute_after_20", pooled, trained(optimizer, initialisation="default", **values))

    three = {optimizer: [after_20(optimizer, seed=seed) for seed in range(3)] for optimizer in OPTIMIZERS}
    between_two(text, "at {} to {}.", three["adam"])
    between_two(text, "has {} to {},", three["descent"])
    between_two(text, "momentum {} to {}.", three["momentum"])
    entropy = [after_20(optimizer, loss="cross_entropy") for optimizer in OPTIMIZERS]
    assert "at {:.2f}, {:.2f} and {:.2f},".format(*entropy) in text
    real, foretold = (correlations(name, between, loss="cross_entropy") for name in ("absolute_after_20", "forecast"))
    between_two(text, "steps: {} to {} |", real)
    said = "cross-entropy: {:.2f}, {:.2f} and {:.2f}, where the forecast has {:.2f}, {:.2f} and {:.2f}."
    assert said.format(*real, *foretold) in text
    step = [row["step_seconds"] for row in results.kept("design-further")]
    assert 0.1 < 20 * np.median(step) < 0.5


def test_how_much_shorter_a_forecast_must_be(text):
    def shares(*band, column="forecast_tenth", losses=("mse", "cross_entropy")):
        some = [trained(optimizer, loss) for loss in losses for optimizer in OPTIMIZERS]
        return [100 * np.mean(in_order(rows, column, *band)) for rows in some]

    little, some, much, most = (shares(*band) for band in ((1, 1.5), (1.5, 3), (3, 10), (10, np.inf)))
    assert f"least {min(most):.0f} of" in text
    assert f"in {min(little[:3]):.0f} to {max(little[:3]):.0f} |" in text
    assert f"in {min(most[3:]):.0f} of 100; less than 1.5 times: in {min(little[3:]):.0f} to" in text
    assert f"to {max(little[3:]):.0f}," in text and min(most) == min(most[:3])
    assert max(little[3:]) < 60 < min(little[:3]) and max(some) < 95
    said = "About nine times of ten it is right from a factor of 1.5 on with cross-entropy, and of three with "
    assert f"{said}the" in text and 87 < min(some[3:])
    assert min(much[3:]) > 90 and min(much[:2]) >= 90 > much[2] and max(some[:3]) < 85 and most[2] > 90
    kappa, forecast = (shares(1, 3, column=name, losses=["mse"])[0] for name in ("kappa", "forecast_tenth"))
    assert f"in {kappa:.0f} of 100 pairs under gradient descent; the forecast in {forecast:.0f}" in text


def test_goals():
    early = [order(trained(name), goal).value("initial_loss") for name in OPTIMIZERS for goal in ("1e-1", "1e-2")]
    assert max(early) < -0.35
    late = {name: order(trained(name), "1e-4") for name in OPTIMIZERS}
    caught = [late[name].value("kappa") - late[name].value("forecast_kp") for name in ("descent", "adam")]
    assert np.abs(caught).max() < 0.07 and max(late["momentum"].value(name) for name in ("kappa", "forecast_kp")) < 0.25


def test_networks_arrive_sooner_than_forecast(text):
    over = {name: factors(optimizer=name) for name in ("descent", "adam")}
    for name, words in (("descent", "under gradient descent"), ("adam", "under Adam")):
        assert f"than {np.median(over[name]):.1f} {words}" in text
    kp = {
        name: np.array([r["forecast_kp_tenth"] / r["steps_tenth"] for r in trained(name) if r["steps_tenth"]])
        for name in ("descent", "adam")
    }
    said = "than {:.1f} under gradient descent, and by more than {:.1f} under"
    assert said.format(*(np.median(some) for some in kp.values())) in text
    assert np.mean(np.abs(np.log(kp["descent"])) < np.log(3)) == pytest.approx(3 / 4, abs=0.02)
    near = np.mean(np.abs(np.log(over["descent"])) < np.log(3))
    assert f"descent {100 * near:.0f} of" in text
    assert round(np.median(over["adam"])) == 5
    most = np.mean(over["adam"] > 20)
    assert most == pytest.approx(1 / 4, abs=0.03)
    moving = [row for row in trained() if row["steps_tenth"] is not None and row["drift"] > 1]
    right = np.abs(np.log([row["forecast_tenth"] / row["steps_tenth"] for row in moving])) < np.log(3)
    assert abs(np.mean(right) - 2 / 3) < 0.05
    slow = [
        factors(family=family, drift=row["drift"])
        for family in EARLY
        for row in trained(family=family)
        if row["drift"] < 1
    ]
    early = np.concatenate(slow)
    assert f"arrive {min(early):.0f} to {max(early):.0f} times" in text


def test_the_best_rate():
    best = [row["rate_tenth"] * row["largest"] / 2 for row in trained() if row["steps_tenth"] is not None]
    assert 1.75 < np.median(best) < 2.5


def apart(optimizer, statistic):
    """Over all networks, and among those that arrive."""
    return [order(some, statistic=statistic) for some in (trained(optimizer), arrived(trained(optimizer)))]


def test_what_is_left_within_families_among_those_that_arrive(text):
    there = [apart(optimizer, within)[1] for optimizer in OPTIMIZERS]
    between_two(text, "same: {} to {} for", [f.value("initial_loss") for f in there])
    between_two(text, ", {} to {} for", [f.value("kappa") for f in there])
    between_two(text, "Adam, {} to {}.", [f.value("forecast") for f in there[1:]])


def test_what_is_left_between_families_among_those_that_arrive(text):
    there = {optimizer: apart(optimizer, between)[1] for optimizer in OPTIMIZERS}
    three = "{:.2f}, {:.2f} and {:.2f}"
    kappa, forecast = (three.format(*(f.value(name) for f in there.values())) for name in ("kappa", "forecast"))
    assert f"has {kappa} (gradient descent, momentum, Adam), and the forecast {forecast}." in text
    some = arrived(trained())
    assert len({row["family"] for row in some}) == 10 and f"with {len(some)} networks" in text
    assert f"at {there['descent'].interval('kappa').low:.2f}" in text
    both = [[found.value("absolute_after_20") for found in apart(name, between)] for name in ("descent", "momentum")]
    before, after = ("{:.2f} and {:.2f}".format(*some) for some in zip(*both, strict=True))
    assert f"has {before} between families under gradient descent and momentum, and {after} among" in text
    shares = [found.value("loss_after_20") for found in apart("descent", between)]
    assert "has {:.2f} under gradient descent, and {:.2f} among".format(*shares) in text
    three_each = [found.value(name) for found in there.values() for name in ("kappa", "forecast", "forecast_kp")]
    between_two(text, "goal {} to {},", three_each)
    lows = [f.interval(name).low for f in there.values() for name in ("kappa", "forecast")]
    assert f"from {min(lows):.2f} |" in text
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
    assert "goes from {:.2f} to {:.2f}".format(*turned) in text
    assert "from {:.2f} to {:.2f}](what-predicts-training-further.md#more-images)".format(*turned) in text


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
    assert f"three: {first} under gradient descent, {second} under momentum, {third} under" in text
    assert f"by {min(least):.1f} times" in text
    assert [name for name, _ in late] == ["descent", "momentum"]
    (plain,) = (row for name, row in late if name == "descent")
    assert (plain["family"], plain["initialisation"], round(plain["forecast_tenth"])) == ("CNN", "default", 57)
    rows = arrived([row for row in trained("adam", "cross_entropy") if 30 <= row["forecast_tenth"] < 100])
    near = [row for row in rows if 1 / 3 < row["forecast_tenth"] / row["steps_tenth"] < 3]
    assert f"of {len(rows)} forecasts between 30 and 100, only {len(near)} are" in text


def test_the_two_networks_that_come_first(chapter):
    """The one with the smaller condition number is slower, and the other two numbers say so."""
    a, b = ([float(word.replace(",", "")) for word in line[1:]] for line in words_of(FIRST, "three numbers known"))
    assert 6.5 < b[0] / a[0] < 7 and 2.8 < a[3] / b[3] < 3.3
    assert 180 < a[1] / b[1] < 250
    assert b[1] < a[1] and b[2] < a[2]
    assert f"after {a[3]:.0f} steps; B crosses it after {b[3]:.0f}." in chapter


def first_under(curve, goal):
    return next((i for i, y in enumerate(curve) if y is not None and y < goal), np.inf)


def test_one_network_rate_by_rate():
    """On the slider of the chapter, and in the tables of its further experiments."""
    frames = slider(FIRST)
    rates = [*frames]
    assert (rates[0], rates[len(rates) // 2], rates[-1]) == ("0.25", "2", "6")  # what is drawn where nothing moves
    steps = {}
    for rate, ((_, network), (_, linear), (_, (goal, _))) in frames.items():
        steps[float(rate)] = first_under(network, goal)
        assert steps[float(rate)] <= first_under(linear, goal)
        assert float(rate) <= 2 or first_under(linear, goal) == np.inf
    assert max(steps[5], steps[6]) < min(steps[rate] for rate in steps if rate < 5)
    by_rate = {float(rate): [*map(float, steps)] for rate, *steps in words_of(FURTHER, "steps to the goal; inf")}
    assert by_rate[8][0] == np.inf and by_rate[2][1] < np.inf == by_rate[3][1]
    largest = {float(line[0]): [*map(float, line[1:])] for line in words_of(FURTHER, "the largest eigenvalue after")}
    assert 20 < largest[6][0] < 50 and 0.4 < largest[6][3] < largest[6][2] < 0.6  # after 40 and 20 steps
    assert [allowed for *_, allowed in largest.values()] == pytest.approx([1, 0.5, 0.33])
    assert all(0.9 * allowed < late < 1.1 * allowed for *_, late, allowed in largest.values())


def test_short_forecasts_are_roughly_right_and_long_ones_too_long(chapter, text):
    rates, long, never, short = [], [], 0, {"mse": [], "cross_entropy": []}
    for loss, optimizer in product(short, OPTIMIZERS):
        rows = [row | {"forecast": row["forecast_tenth"] or np.inf} for row in trained(optimizer, loss)]
        few = [row for row in rows if row["forecast"] < 100]
        short[loss].append(len(few) / len(rows))
        there = [row["forecast"] / row["steps_tenth"] for row in arrived(few)]
        never += len(few) - len(there)
        rates.append(100 * np.mean(np.abs(np.log(there)) < np.log(3)))
        long.append(np.mean([row["forecast"] > row["steps_tenth"] for row in arrived(rows) if row not in few]))
    assert f"[{min(rates):.0f} to {max(rates):.0f} %]" in chapter and min(long) > 0.9
    assert f"three: {min(rates[:3]):.0f} to {max(rates[:3]):.0f} %" in text
    trainings = sum(
        round(share * count) for loss, count in (("mse", 216), ("cross_entropy", 72)) for share in short[loss]
    )
    assert f"Of {trainings} trainings" in chapter and never == 3
    assert np.mean(short["mse"]) == pytest.approx(1 / 7, abs=0.01)
    assert np.mean(short["cross_entropy"]) == pytest.approx(5 / 6, abs=0.01)


def test_the_figure_of_one_network_of_each_architecture():
    """From a forecast of 30 steps on the networks that arrive lie below the line."""
    some = [row for o in OPTIMIZERS for kind in ("mse", "cross_entropy") for row in trained(o, kind, seed=0)]
    shown = arrived(row for row in some if row["initialisation"] == "default")
    assert all(row["steps_tenth"] < row["forecast_tenth"] for row in shown if row["forecast_tenth"] > 30)
