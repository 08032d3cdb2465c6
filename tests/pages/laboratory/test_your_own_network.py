"""What "Condition a network of your own" and its further experiments say of trainings is what their tables show."""

import math
import re
from collections import defaultdict
from itertools import product
from statistics import correlation, median

from gnbook import results
from gnbook.design.trial import arriving, speedups
from gnbook.your_own_network.trial import FAULTS, first_tries

from gnlib.diagnosis.forecast import FACTOR
from tests.pages.laboratory.stated import states
from tests.pages.pages import prose, table, texts

FURTHER = "laboratory/your-own-network-further"
BEGINNINGS = "default", "Kaiming", "orthogonal"
TEXT, MORE = prose("notebooks/laboratory/your-own-network"), prose(f"notebooks/{FURTHER}")


def test_orthogonal_weights_are_slower():
    held = [row for row in results.kept("design-further") if row["held_out"]]
    descent, adam = (
        speedups(arriving([row for row in held if row["optimizer"] == optimizer]), "orthogonal", "torch's default")[0]
        for optimizer in ("descent", "adam")
    )
    assert max(descent, adam) < 1


def test_how_far_a_forecast_reaches():
    rows = [line.split() for line in table(FURTHER, "rank correlation of the measured loss")]
    models = {int(row[0]): row[1] for row in rows}
    assert models == {10: "1.0", 30: "1.0", 100: "0.5", 300: "-0.1"}
    assert {row[2] for row in rows} == {"0.2", "0.3"}
    lines = [line.rsplit(maxsplit=6) for line in table(FURTHER, "loss after 300 steps")]
    leave = [name.strip() for name, *numbers in lines if float(numbers[-1]) > 2]
    assert states(MORE, '"{}" and "{}".'.format(*leave))
    eleven = [
        row
        for row in results.kept("your-own-network-further")
        if (row["loss"], row["optimizer"], row["seed"]) == ("mse", "descent", 0)
    ]
    nine = [row for row in eleven if 0.1 < row["off"] < 10]
    assert (len(eleven), len(nine)) == (11, 9)
    modelled, measured = ([row["left"] / (row["off"] if by else 1) for row in nine] for by in (True, False))
    ranks = ([sorted(values).index(value) for value in values] for values in (modelled, measured))
    assert states(TEXT, f"still {correlation(*ranks):.1f} (")


def test_what_the_reports_say():
    """That for Adam, its factor; and that of a healthy network, how far it is trusted, and how near real steps are."""
    of_adam, healthy = (
        next(" ".join(text.split()) for text in texts(page) if text.startswith(begin))
        for page, begin in (("laboratory/your-own-network", "try "), (FURTHER, "rank "))
    )
    assert re.search(r"steps of Adam instead of \d+, each at the best of three rates", of_adam)
    assert "rank 450 of 450" in healthy
    (last,) = re.findall(r"trusted until step (\d+)", healthy)
    taken, within = re.search(r"followed (\d+) real steps: within ([\d.]+) of the forecast", healthy).groups()
    assert states(MORE, f"for {last} steps") and states(MORE, f"took {taken} real steps")
    assert states(MORE, f"factor of {within} of") and states(MORE, f"up to {FACTOR} is")


def trial():
    """The rows of the trial, the first suggestions, and whose report suggests nothing: the best change."""
    rows = results.kept("your-own-network")
    firsts, silent = first_tries(rows), defaultdict(float)
    asked = {tuple(one[column] for column in ("seed", "network", "fault")) for one in firsts}
    for row in rows:
        patient = tuple(row[column] for column in ("seed", "network", "fault"))
        if patient not in asked:
            silent[patient] = max(silent[patient], (row["before"] or 1000) / (row["after"] or 1000))
    return rows, firsts, silent


def test_what_the_trial_of_the_rule_for_adam_shows():
    _, firsts, silent = trial()
    high, low = ([one for one in firsts if (one["of_adam"] > 2) == over] for over in (True, False))
    gains = sorted(one["sooner"] for one in high)
    faster = sum(gain > 1 for gain in gains)
    assert states(TEXT, f"{faster} of the {len(high)} changes") and {one["fault"] for one in high} <= {*FAULTS} - {
        "none"
    }
    assert states(TEXT, f"Adam {faster} of {len(high)} changes")
    slower = [one for one in high if one["sooner"] < 1]
    assert {(one["network"], one["fault"]) for one in slower} == {("CNN", "images from 0 to 255")}
    worth = [one["sooner"] for one in low]
    assert (len(low), sum(gain > 1 for gain in worth)) == (8, 7)
    assert states(TEXT, f"by {median(worth):.2f}.") and states(TEXT, f"is {median(gains):.2f} in")
    *rest, second, most = sorted(silent.values())
    assert states(TEXT, f"training {second:.1f} and {most:.1f} times")
    assert max(rest) == 1.6
    lines = [line.split()[-5:] for line in table("laboratory/your-own-network", "what is foretold for Adam")]
    for fault, line in zip(
        ("images from 0 to 1", "images from 0 to 255", "weights of 0.02", "none"), lines, strict=True
    ):
        above, below = ([one["sooner"] for one in group if one["fault"] == fault] for group in (high, low))
        counts = [n for those in (above, below) for n in (len(those), sum(gain > 1 for gain in those))]
        assert line == [str(n) for n in (*counts, sum(patient[-1] == fault for patient in silent))]
        assert len(above) + len(below) + int(line[-1]) == 15
    assert len(firsts) + len(silent) == 60


def test_two_changes_need_no_tool():
    """The changes above two by their fault, and both remedies where nothing is asked."""
    rows, firsts, _ = trial()
    high = [one for one in firsts if one["of_adam"] > 2]
    raw, small = ([one for one in high if one["fault"].startswith(what)] for what in ("images", "weights"))
    assert (len(raw), len(small)) == (24, 8) and {one["change"].split()[0] for one in raw} == {"centre"}
    gains = {
        what: {(row["seed"], row["network"], row["fault"]): (row["before"] or 1000) / row["after"] for row in of}
        for what in ("centre", "rescale")
        for of in [[row for row in rows if row["change"].startswith(what)]]
    }
    centred, drawn = gains.values()
    every = [*centred.values(), *drawn.values()]
    faster = f"{sum(gain > 1 for gain in every)} of {len(every)}"
    assert states(TEXT, f"made {faster} with such a fault faster") and states(TEXT, f"{median(every):.1f} times")
    assert states(TEXT, f"tool: {faster} networks") and min(drawn.values()) > 1
    slower = {patient: gain for patient, gain in centred.items() if gain < 1}
    assert {patient[1:] for patient in slower} == {("CNN", "images from 0 to 255")} and len(slower) == 3
    assert states(TEXT, f"at {min(slower.values()):.2f} to {max(slower.values()):.2f}")
    anew = [drawn[one["seed"], one["network"], one["fault"]] for one in small]
    assert all(gain >= one["sooner"] for gain, one in zip(anew, small, strict=True))
    unasked = table("laboratory/your-own-network", "times sooner, with Adam")
    by_range = ([gain for patient, gain in centred.items() if patient[-1].endswith(end)] for end in ("1", "255"))
    for line, values in zip(unasked, [*by_range, [*drawn.values()]], strict=True):
        shown = [float(word) for word in line.split()[-3:]]
        assert line.split()[-5:-3] == [str(len(values)), str(sum(gain > 1 for gain in values))]
        ends = min(values), median(values), max(values)
        assert all(abs(x - y) < 0.0051 for x, y in zip(shown, ends, strict=True))


def test_what_standardising_gains_with_adam():
    raw = defaultdict(list)
    for row in results.kept("your-own-network"):
        if row["change"].startswith("centre") and row["fault"] == "images from 0 to 1":
            raw[row["network"]].append((row["before"] or 1000) / row["after"])
    perceptrons = [gain for network, values in raw.items() if "perceptron" in network for gain in values]
    said = "least {:.1f} times ... CNNs {:.1f} to {:.1f}, transformers {:.1f} to {:.1f},"
    ends = [f(of) for of in (raw["CNN"], raw["transformer"]) for f in (min, max)]
    assert states(TEXT, said, min(perceptrons), *ends)
    assert states(TEXT, "GroupNorm {:.1f} to {:.1f}.".format(min(raw["CNN, GroupNorm"]), max(raw["CNN, GroupNorm"])))


def test_the_rule_by_gradient_descent_rests_on_the_quick_start():
    lines = [line.split() for line in table("laboratory/quick-start", "the factor that the report foretells")]
    (mlp, of_mlp), (cnn, of_cnn), (vit, of_vit) = ((line[-4], line[-1]) for line in lines)
    assert states(TEXT, f"{mlp} foretold and {of_mlp} real, {vit} and {of_vit}, {cnn} and {of_cnn}.")
    assert all(float(told) > 3 for told in (mlp, cnn, vit))


def test_the_check_of_thirty_steps_tried():
    """In the order of the table: trainings, those that diverge, that leave, alarms among them and elsewhere."""
    shown = [
        [int(word) for word in line.split()[-5:]]
        for line in table("laboratory/your-own-network", "after thirty steps: alarms")
    ]
    seen, again, (_, _, *of_descent), of_adam, of_squares = shown
    rows = results.kept("your-own-network-further")
    assert len(rows) == sum(first for first, *_ in shown) == 132
    assert seen == [11, 0, 2, 2, 0] and again[2:] == [4, 3, 0]
    gone, raised = (again[i] + of_descent[i - 2] + of_adam[i] for i in (2, 3))
    assert states(TEXT, f"the {gone} new ... left, {raised} had")
    assert states(MORE, f"| {132 - of_squares[0]} trainings,")
    assert states(MORE, f"on {of_squares[0]} more,")
    wrong = sum(line[-1] for line in shown)
    alarms = [row["off"] for row in rows if row["off"] and row["early"] > 2]
    assert max(alarms) < 0.53 and states(TEXT, f"All {len(alarms)} alarms,")
    below = sum(off < 0.1 for off in alarms)
    assert states(TEXT, f"the {len(alarms)}, {below} ended") and len(alarms) - below == wrong
    silent = [
        row["off"]
        for row in rows
        if (row["loss"], row["optimizer"]) == ("cross_entropy", "descent") and row["off"] and row["early"] <= 2
    ]
    assert all(0.1 < off < 10 for off in silent)
    _, _, gone, raised, _ = of_squares
    assert states(TEXT, f"only {raised} of another {gone}.")


def test_which_weights_are_sooner():
    """Medians over the seeds; those that never arrive come last."""
    steps = defaultdict(list)
    for row in results.kept("what-predicts-training"):
        if row["n"] == 50:
            way = row["loss"], row["optimizer"], row["family"], row["initialisation"]
            steps[way].append(math.inf if row["steps_tenth"] is None else row["steps_tenth"])
    families = {family for *_, family, _ in steps}

    def sooner(*way, than="default", by="orthogonal"):
        return {family for family in families if median(steps[*way, family, by]) < median(steps[*way, family, than])}

    assert len(families) == 12
    for weights in ("orthogonal", "Kaiming"):
        assert len(sooner("mse", "descent", by="default", than=weights)) == 9
        assert sooner("mse", "descent", by=weights) == set()
        assert sooner("mse", "adam", by="default", than=weights) == families
        assert sooner("cross_entropy", "descent", by=weights) == families
    assert len(sooner("cross_entropy", "adam")) == 9
    resnets = {family for family in families if "ResNet" in family}
    assert len(resnets) == 3 and sooner("cross_entropy", "adam", by="default", than="orthogonal") == resnets

    speed = {
        (way, family): median(steps["cross_entropy", way, family, "default"])
        / median(steps["cross_entropy", way, family, "orthogonal"])
        for way, family in product(("descent", "adam"), families)
    }
    descent = sorted(value for (way, _), value in speed.items() if way == "descent")
    assert descent[-2:] == [math.inf] * 2 and descent[9] < math.inf
    said = "of {:.1f} to {:.1f} in"
    assert states(MORE, said.format(descent[0], descent[9]))
    ahead = [speed["adam", family] for family in families - resnets]
    behind = [speed["adam", family] for family in resnets]
    assert states(MORE, f"of {min(ahead):.1f} to {max(ahead):.1f}.")
    assert states(MORE, f"at {min(behind):.2f} to {max(behind):.2f} of")

    of_adam = {
        family: {way: median(steps["cross_entropy", "adam", family, way]) for way in BEGINNINGS} for family in families
    }
    assert all(of["orthogonal"] == min(of.values()) for family, of in of_adam.items() if "ViT" in family)
