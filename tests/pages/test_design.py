"""The numbers in the text of "Design" and of its further experiments are those of kept tables and of their outputs."""

import math
import re

import numpy as np
import pytest
import torch
from gnbook import results
from gnbook.design.families import FAMILIES, HELD_OUT, build
from gnbook.design.in_batches import HORIZON as LONG
from gnbook.design.initialisations import SEARCHED, UNTUNED, initialised
from gnbook.design.layers import layers_of
from gnbook.design.objectives import log_time
from gnbook.design.preconditioners import divided_kernel, fastest, plain
from gnbook.design.trial import CHOICE, ENOUGH, HORIZON, LEAST, arriving, images, speedups
from gnbook.shared.tuning import constant_loss

import gnlib
from tests.pages.pages import prose, table


@pytest.fixture(scope="module")
def text():
    return f"{prose('notebooks/design')} {prose('notebooks/design-further')}"


@pytest.fixture(scope="module")
def held():
    """Gradient descent on the families held out."""
    return [row for row in results.kept("design-further") if row["held_out"] and row["optimizer"] == "descent"]


@pytest.fixture(scope="module")
def counted(held):
    """Those of them in which trainings arrive."""
    return arriving(held)


@pytest.fixture(scope="module")
def adam():
    """Adam on the families held out, all of which count."""
    rows = [row for row in results.kept("design-further") if row["held_out"] and row["optimizer"] == "adam"]
    assert arriving(rows) == rows
    return rows


@pytest.fixture(scope="module")
def bar():
    return UNTUNED[0]


def of_family(rows, family):
    return [row for row in rows if row["family"] == family]


def mean_of(rows, name, column):
    """Return the geometric mean of a column over the seeds; what does not arrive counts as the horizon."""
    return np.exp(np.mean([np.log(row[column] or HORIZON) for row in rows if row["initialisation"] == name]))


def test_what_was_run(text, held, counted, adam):
    table = results.kept("design-further")
    assert {row["initialisation"] for row in held} == {*UNTUNED, *SEARCHED}
    assert {(row["family"], row["optimizer"], row["seed"]) for row in table} == {
        (family, optimizer, seed)
        for family in HELD_OUT
        for optimizer, seeds in (("descent", 5), ("adam", 3))
        for seed in range(1, seeds + 1)
    }
    assert [len({row["family"] for row in rows}) for rows in (counted, adam)] == [4, 4] and counted == held
    assert (len(UNTUNED), len(SEARCHED)) == (5, 7)
    sizes = [sum(p.numel() for p in build(family, seed=0).parameters()) for family in FAMILIES]
    assert "of 7,300 to 49,900 parameters" in text
    assert (round(min(sizes), -2), round(max(sizes), -2)) == (7300, 49_900)


def test_what_was_chosen_beforehand(text):
    assert f"choice is `{CHOICE}`; success is {ENOUGH} times the" in text


def test_no_search_beats_the_best_that_is_free(text, held, counted, adam, bar):
    assert "it | 1 |" in text
    assert all(speedups(adam, name, bar)[0] < 1 for name in SEARCHED)
    zero = "last layer zero"
    value, low, high = speedups(counted, zero, bar)
    assert low < 1 < value < high and all(speedups(counted, name, bar)[0] < 1 for name in {*UNTUNED[1:]} - {zero})
    assert all(speedups(counted, name, bar)[0] < 1 for name in SEARCHED)
    assert all(speedups(adam, name, zero)[0] < 1 for name in {*UNTUNED, *SEARCHED} - {zero})


def test_without_trained_biases_kappa_is_blind_to_the_product(text):
    here, found = images(25, 0, torch.device("cpu")), []
    for trained in (True, False):
        for gain in (1, 0.41, 0.25):
            module = initialised(build("CNN", seed=0), "Kaiming", here, seed=0)
            for name, p in module.named_parameters():
                p.requires_grad_(trained or "weight" in name)
                p.data *= gain if "weight" in name else 1
            found.append(gnlib.condition_number(module, here.x).value)
    one, less, least, *frozen = found
    assert f"$\\kappa = {one:.0f}$ with Kaiming's weights, {less:.0f} with a gain of 0.41 on each" in text
    assert f"and {least:,.0f} with 0.25." in text
    assert f"it has {frozen[0]:.0f} each time." in text
    assert frozen == pytest.approx([frozen[0]] * 3, rel=1e-6)


def test_the_mean_hangs_on_the_funnel(text, counted, bar):
    others = [row for row in counted if row["family"] != "funnel, leaky ReLU"]
    assert f"it would be {speedups(others, CHOICE, bar)[0]:.2f}." in text
    (_, *ends), (_, *common) = (speedups(counted, name, bar) for name in (CHOICE, "common gain"))
    said = "the forecast, {:.2f} to {:.2f}, and that of the common gain, {:.2f} to {:.2f}, contain both 1 and 1.3."
    assert said.format(*ends, *common) in text
    assert all(low < 1 and ENOUGH < high for low, high in (ends, common))


def test_one_number_does_about_as_well(text, counted):
    said = "The common gain takes {:.0f} steps on the deep CNN and the forecast {:.0f}; "
    said += "with batch normalisation they take {:.0f} and {:.0f}."
    rows = (of_family(counted, family) for family in ("deep CNN", "CNN, BatchNorm"))
    assert said.format(*(mean_of(some, name, "steps") for some in rows for name in ("common gain", CHOICE))) in text


def test_the_choice_is_no_success(text, counted, bar):
    value, low, high = speedups(counted, CHOICE, bar)
    assert f"reach {value:.2f} times the speed of torch's default, where {ENOUGH} times the" in text
    over_kaiming, free, zero = (speedups(counted, name, "Kaiming")[0] for name in (CHOICE, bar, "last layer zero"))
    assert f"They are {over_kaiming:.2f} times as" in text
    assert f"nothing, has {free:.2f}, and the last layer at zero {zero:.2f};" in text
    assert value < ENOUGH and low < 1 < high and speedups(counted, CHOICE, "last layer zero")[0] < 1
    some = [row for row in counted if row["family"] != "deep and narrow"]
    written = ["{:.2f} [{:.2f}, {:.2f}]".format(*speedups(some, name, bar)) for name in (CHOICE, "last layer zero")]
    said = "forecast have {}, and the last layer at zero {}."
    assert said.format(*written) in text
    first = speedups([row for row in counted if row["seed"] == 1], CHOICE, bar)[0]
    assert f"choice had {first:.2f} in four" in text
    assert f"success either, {value:.2f} [{low:.2f}, {high:.2f}]." in prose("book/scorecard")


def test_the_condition_number_and_gradinit(text, counted, adam, bar):
    (kappa, low, high), (other, *_) = (speedups(counted, name, bar) for name in ("condition number", "GradInit"))
    over_kaiming = speedups(counted, "condition number", "Kaiming")[0]
    assert f"have {kappa:.2f} times the speed of torch's default, [{low:.2f}, {high:.2f}], and" in text
    assert f"and {over_kaiming:.2f} times that" in text
    with_adam, low, high = speedups(adam, "condition number", bar)
    assert f"they have {with_adam:.2f} times that of torch's default, [{low:.2f}, {high:.2f}]." in text
    assert f"GradInit, reaches {other:.2f}." in text
    assert other > speedups(counted, "MetaInit", bar)[0]
    card = prose("book/scorecard")
    assert f"train at {kappa:.2f} times the" in card
    assert f"smallest condition number has {with_adam:.2f}." in card


def test_where_it_is_ahead_and_where_behind(text, counted, adam, bar):
    by_family = {family: speedups(of_family(counted, family), CHOICE, bar)[0] for family in HELD_OUT}
    deep, normalised = by_family["deep CNN"], by_family["CNN, BatchNorm"]
    assert f"{deep:.2f} times as fast on the deep CNN, {normalised:.2f} times with" in text
    assert 1 / by_family["funnel, leaky ReLU"] == pytest.approx(5, abs=0.4)
    narrow = of_family(counted, "deep and narrow")
    arrived = [row["initialisation"] for row in narrow if row["steps"] is not None]
    assert f"{len(arrived)} of {len(narrow)} trainings arrive within 400 steps, four" in text
    assert LEAST <= len(arrived) / len(narrow) < LEAST + 0.02 and arrived.count("last layer zero") == 4
    some = of_family(adam, "deep and narrow")
    assert f"Under Adam {sum(row['steps'] is not None for row in some)} of {len(some)} arrive there" in text


def test_which_initialisation_is_ahead_everywhere(text, counted, adam, bar):
    everywhere = [
        {
            name
            for name in {*UNTUNED, *SEARCHED} - {bar}
            if all(speedups(of_family(rows, family), name, bar)[0] > 1 for family in {row["family"] for row in rows})
        }
        for rows in (counted, adam)
    ]
    assert everywhere == [set(), {"last layer zero"}]


def test_under_adam(text, adam, bar):
    grad, forecast, own = (speedups(adam, name, bar)[0] for name in ("GradInit", CHOICE, "forecast with K_P"))
    zero, *ends = speedups(adam, "last layer zero", bar)
    assert f"{zero:.2f} times the" in text
    of = {family: speedups(of_family(adam, family), "last layer zero", bar)[0] for family in HELD_OUT}
    said = "from {:.2f} (CNN with BatchNorm) to {:.2f} (deep CNN)".format(of["CNN, BatchNorm"], of["deep CNN"])
    assert said in text and [of["CNN, BatchNorm"], of["deep CNN"]] == [min(of.values()), max(of.values())]
    said = "It has {:.2f} times the speed of torch's default, [{:.2f}, {:.2f}] with three seeds, and is ahead in"
    assert said.format(zero, *ends) in text
    assert all(speedups(of_family(adam, family), "last layer zero", bar)[0] > 1 for family in HELD_OUT)
    since = speedups([row for row in adam if row["seed"] > 1], "last layer zero", bar)
    assert "themselves, say {:.2f} [{:.2f}, {:.2f}].".format(*since) in text
    assert f"GradInit, has {grad:.2f}, the forecast {forecast:.2f}, and" in text
    assert grad == max(speedups(adam, name, bar)[0] for name in SEARCHED)
    assert f"own kernel {own:.2f}." in text


def rows_arrive_nowhere(rows, names):
    return all(row["steps"] is None for row in rows if row["initialisation"] in names)


def test_orthogonal_weights_have_a_small_kappa_and_are_slower(text, counted, adam, bar):
    descent, with_adam = (speedups(rows, "orthogonal", bar)[0] for rows in (counted, adam))
    assert f"{descent:.2f} times its speed under gradient descent, {with_adam:.2f} under Adam." in text
    for rows in (of_family(some, family) for some in (counted, adam) for family in HELD_OUT):
        kappa, loss, steps = (
            mean_of(rows, "orthogonal", column) / mean_of(rows, bar, column)
            for column in ("kappa", "initial_loss", "steps")
        )
        assert kappa < 1 and loss > 3 and (steps > 1 or rows_arrive_nowhere(rows, ("orthogonal", bar)))


def test_a_last_layer_at_zero(text, counted, adam):
    slower = [
        (family, some is adam)
        for some in (counted, adam)
        for family in HELD_OUT
        if speedups(of_family(some, family), "last layer zero", "Kaiming")[0] <= 1
    ]
    assert slower == [("CNN, BatchNorm", False)]


def test_what_searches_cost(text, counted, bar):
    costs = [row["search_seconds"] / row["step_seconds"] for row in counted if row["search_seconds"]]
    assert "much as 30 to 1,300 of them" in text
    assert (round(min(costs), -1), round(max(costs), -2)) == (30, 1300)
    assert all(speedups(counted, name, bar, charged=True)[0] < 0.4 for name in SEARCHED)


def test_torch_draws_a_sixth_of_the_variance_and_the_model_is_wrong_about_the_cnn(text):
    assert "gain of 0.41," in text
    assert round(6**-0.5, 2) == 0.41
    here = images(25, 0, torch.device("cpu"))
    layers = layers_of(initialised(build("CNN", seed=0), "Kaiming", here, seed=0), here.x)
    (there, moved), (at_one, _) = (
        log_time(layers, torch.full_like(layers.degrees, math.log(gain)), here.y, constant_loss(here.y, "mse") / 10)
        for gain in (6**-0.5, 1.0)
    )
    assert (there - at_one).exp().item() == pytest.approx(2, abs=0.3)
    assert moved.sum().sqrt() > 5
    torch.manual_seed(0)
    for layer, inputs in ((torch.nn.Linear(500, 400), 500), (torch.nn.Conv2d(50, 60, 3), 450)):
        assert layer.weight.var().item() == pytest.approx(2 / inputs / 6, rel=0.05)


def numbers(line):
    return [float(word.replace(",", "")) for word in line.split() if word.replace(",", "").replace(".", "").isdigit()]


def test_gains_lower_kappa_little_and_features_much(text):
    rows = {line[:16].strip(): numbers(line[16:])[-3:] for line in table("design", "condition number at Kaiming's")}
    before, after, certificate = np.array([*rows.values()]).T
    assert 0.45 < (after / before).min() < 0.55
    assert (certificate <= after).all() and rows["MLP"][2] < after[0] / 5
    assert f"get to {rows['MLP'][1]:,.0f}." in text


def test_descent_divided_by_features(text):
    found = {}
    for line in table("design-further", "steps to the goal, by the forecast and in training; its rate"):
        start, *words = line.rsplit(maxsplit=4)
        weights, inputs, name = re.split(r" +", start.replace("torch's default", "default").strip(), maxsplit=2)
        found[weights, inputs, name] = [float(word.replace(",", "")) for word in words]
    assert len(found) == 12
    little, more = "features, damping 0.001", "features, damping 0.1"
    plain, small, best = (found["default", "standardised", name] for name in ("none", little, more))
    diagonal, white = found["default", "standardised", "diagonal"][2], found["default", "white", "none"][2]
    assert (
        f"{plain[2]:.0f} steps become {best[2]:.0f}. White inputs of unit scale alone need {white:.0f} steps." in text
    )
    assert f"trains in {best[2]:.0f} steps instead of {plain[2]:.0f}." in text
    assert f"falls from {plain[0]:,.0f} to {best[0]:.0f}." in text
    assert f"it worse, {diagonal:.0f}." in text
    assert diagonal > plain[2] > white
    kaiming, divided = (found["Kaiming", "standardised", name] for name in ("none", more))
    assert f"features make {divided[2]:.0f} steps of {kaiming[2]:.0f}." in text
    assert f"falls from {kaiming[0]:,.0f} to {divided[0]:.0f}, where" in text
    assert (
        f"falls to {small[0]:.0f}, and the training takes {small[2]:.0f} steps where the forecast is {small[1]:.0f}."
        in text
    )
    assert small[3] == pytest.approx(1 / 32, rel=0.02) and small[2] > best[2] and small[0] < best[0]
    assert f"it says {plain[1]:.0f} steps where the training takes {plain[2]:.0f}, at four" in text
    assert plain[3] == 4
    for weights, inputs, _ in found:
        assert found[weights, inputs, more][2] == min(found[weights, inputs, name][2] for *_, name in found)
        assert found[weights, inputs, little][0] < found[weights, inputs, more][0]


def test_small_white_inputs(text):
    here = images(25, 0, torch.device("cpu"))
    white, goal = gnlib.whiten(here.x.flatten(1)).view_as(here.x), constant_loss(here.y, "mse") / 10
    scale = white.square().mean().sqrt()
    assert f"square of {scale:.2f}." in text
    found = []
    for name, x in (("Kaiming", white), ("Kaiming", white / scale), ("torch's default", white), ("Kaiming", here.x)):
        module = initialised(build("MLP", seed=0), name, here, seed=0)
        largest = torch.linalg.eigvalsh(divided_kernel(module, x, plain(module, x)))[-1].item()
        rates = [2.0**power / largest for power in range(4, -9, -1)]
        _, curve = fastest(module, x, here.y, plain(module, x), rates=rates, goal=goal, horizon=HORIZON)
        found.append((len(curve) - 1, curve[0]))
    (small, low), (scaled, _), (default, _), (without, high) = found
    assert f"weights take {small} steps and not {without}." in text
    assert f"begins at {low:.1f} and not at {high:.0f}." in text
    assert f"scale take {scaled}." in text
    assert f"down, from 19 steps to {default}." in text


def test_the_four_trainings_of_the_first_figure(text):
    lines = [line.rsplit(maxsplit=3) for line in table("design", "the four trainings of the figure")]
    found = {name: [float(word.replace(",", "")) for word in words] for name, *words in lines}
    (kappa, low, soon), (other, _, late) = found["torch's default"], found["Kaiming"]
    of_kappa, of_forecast = found["gains: condition number"], found["gains: forecast"]
    assert {round(kappa / one[0]) for one in (found["Kaiming"], of_kappa, of_forecast)} == {6, 7}
    assert 3 < late / soon < 3.6
    assert of_kappa[2] == late and of_kappa[0] > other
    assert max(low, of_forecast[1]) < min(found["Kaiming"][1], of_kappa[1])
    assert max(soon, of_forecast[2]) < late
    assert f"{of_forecast[2]:.0f} against 81 on one processor and 87 on another." in text and soon in (81, 87)


def test_what_orders_initialisations(text, adam):
    found = {"gradient descent": {}, "Adam": {}}
    for line in table("design-further", "rank correlation with the steps, over the twelve"):
        which, *_ = (optimizer for optimizer in found if line.startswith(optimizer))
        family, *numbers = line.removeprefix(which).strip().rsplit(maxsplit=2)
        found[which][family] = [float(number) for number in numbers]
    normalised = found["gradient descent"].pop("CNN, BatchNorm")
    assert normalised[0] > normalised[1] + 0.2
    kappa, loss = zip(
        *(found["gradient descent"][family] for family in ("deep CNN", "funnel, leaky ReLU")), strict=True
    )
    assert all(of_loss > of_kappa for of_loss, of_kappa in zip(loss, kappa, strict=True))
    assert "it has {:.2f} and {:.2f} in the".format(*loss) in text
    assert "and $\\kappa$ {:.2f} and {:.2f}.".format(*kappa) in text
    kappa, loss = zip(*found["Adam"].values(), strict=True)
    assert f"start has {min(loss):.2f} to {max(loss):.2f} in the" in text
    odd = found["Adam"].pop("deep and narrow")[0]
    kappa = [numbers[0] for numbers in found["Adam"].values()]
    said = f"has between {min(kappa):.2f} and {max(kappa):.2f} in three of them, and {odd:.2f} in `deep"
    assert said in text and len(loss) == 4
    late = [row["steps"] is None for row in of_family(adam, "deep and narrow")]
    assert "count as 400 steps" in text and np.mean(late) > 0.5


def test_in_batches_and_with_cross_entropy(text, adam):
    table = results.kept("design-further-in-batches")
    assert len(table) == 12 * 6 * 4 and {row["family"] for row in table} == {*HELD_OUT}
    zero, best = "last layer zero", UNTUNED[0]
    speed, right = {}, {}
    for loss in ("mse", "cross_entropy"):
        for optimizer in ("descent", "adam"):
            some = [row for row in table if (row["loss"], row["optimizer"]) == (loss, optimizer)]
            others = *UNTUNED[1:], CHOICE
            speed[loss, optimizer] = {name: speedups(some, name, best, horizon=LONG) for name in others}
            known = {
                name: [r["accuracy"] for r in some if r["initialisation"] == name and r["steps"]] for name in others
            }
            known[best] = [row["accuracy"] for row in some if row["initialisation"] == best and row["steps"]]
            right[loss, optimizer] = {name: np.mean(found) for name, found in known.items() if found}
    said = "{:.2f} times its speed with the squared error, {:.2f} times with cross-entropy, both intervals above 1."
    with_adam = [speed[loss, "adam"][zero] for loss in ("mse", "cross_entropy")]
    assert said.format(*(value for value, *_ in with_adam)) in text and all(low > 1 for _, low, _ in with_adam)
    assert f"zero | {with_adam[0][0]:.2f} |" in text
    assert f"zero has {with_adam[0][0]:.2f} times the" in text
    assert [name for name, found in speed["mse", "adam"].items() if found[0] > 1] == [zero]
    free = [[speed["cross_entropy", way][name][0] for name in UNTUNED[1:]] for way in ("descent", "adam")]
    said = "have {:.2f} to {:.2f} times its speed under gradient descent, and {:.2f} to {:.2f} with Adam."
    assert said.format(min(free[0]), max(free[0]), min(free[1]), max(free[1])) in text and min(map(min, free)) > 1
    starts = "the same four; they are too close to choose by", "last layer at zero; they cannot be told apart"
    for start, found in zip(starts, free, strict=True):
        assert f"{start} | {min(found):.2f} to {max(found):.2f} |" in text
    some = [row for row in table if (row["loss"], row["optimizer"]) == ("cross_entropy", "adam")]
    for one in UNTUNED[1:]:
        for other in {*UNTUNED[1:]} - {one}:
            _, low, high = speedups(some, one, other, horizon=LONG)
            assert round(low, 2) <= 1 <= round(high, 2)
    assert f"within {max(free[0]) / min(free[0]):.2f} of one" in text
    by_descent, families = (
        {
            family: [speedups(of_family(rows, family), name, best, horizon=LONG)[0] for name in UNTUNED[1:]]
            for family in HELD_OUT
        }
        for rows in ([row for row in table if (row["loss"], row["optimizer"]) == ("cross_entropy", "descent")], some)
    )
    chains = [value for family in ("deep and narrow", "funnel, leaky ReLU") for value in by_descent[family]]
    three = by_descent["deep CNN"], chains, by_descent["CNN, BatchNorm"]
    ends = [end for found in three for end in (min(found), max(found))]
    said = "it is {:.2f} to {:.2f} on the deep CNN, {:.2f} to {:.2f} on the two perceptrons, and {:.2f} to {:.2f} with"
    assert said.format(*ends) in text
    nothing = "{:.2f} to {:.2f}".format(*ends[-2:])
    assert f"others have {nothing} times the" in text
    deep = families.pop("deep CNN")
    rest = [value for found in families.values() for value in found]
    assert f"deep CNN, {min(deep):.2f} to {max(deep):.2f} times; in" in text
    assert f"it is {min(rest):.2f} to {max(rest):.2f}." in text
    said = f"families gain {min(rest):.2f} to {max(rest):.2f} ("
    assert said in text
    assert round(min(deep)) == round(max(deep)) == 2
    late = [row for row in table if (row["loss"], row["optimizer"]) == ("mse", "descent")]
    assert "of their 12 trainings arrives" in text
    for name in UNTUNED[1:4]:
        assert [row["steps"] for row in late if row["initialisation"] == name] == [None] * 12
    said = f"they are {min(free[0]):.1f} to {max(free[0]):.1f} times as"
    assert said in prose("notebooks/your-own-network-further")
    _, low, high = speedups(late, zero, best, horizon=LONG)
    assert low < 1 < high  # "The last layer at zero cannot be told apart from it"
    for values in (free[1], [speedups(adam, zero, best)[0], with_adam[0][0]]):
        assert (round(min(values), 1), round(max(values), 1)) == (1.3, 1.4)
    assert "are 1.3 to 1.4 times as" in prose("notebooks/what-predicts-training")
    assert all(speed["mse", "descent"][name][2] < 1 for name in UNTUNED[1:4])
    for found in speed.values():
        assert found[CHOICE][0] < max(1, *(found[name][0] for name in UNTUNED[1:]))
    every = [share for found in right.values() for share in found.values()]
    assert f"classify {min(every):.2f} to {max(every):.2f} of 1,000 other images" in text
    assert "is within 0.02 of the" in text
    most = {way: max(found.values()) for way, found in right.items()}
    assert [way for way, found in right.items() if found[best] < most[way]] == [("cross_entropy", "adam")]
    assert right["cross_entropy", "adam"][best] > most["cross_entropy", "adam"] - 0.02
    named = right["mse", "adam"]
    assert (
        f"classifies {named[zero]:.0%} of them correctly at the goal, and torch's default {named[best]:.0%}".replace(
            "%", " %"
        )
        in text
    )
