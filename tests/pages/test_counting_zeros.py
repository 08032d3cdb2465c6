"""The numbers in the texts of "Which eigenvalues are zero?" and "Along the training" are those of their tables."""

import re

import pytest
from gnbook import results
from gnbook.counting_zeros.networks import trained
from gnbook.counting_zeros.rules import free_directions

import gnlib
from tests.pages.pages import prose, slider, table, texts

PAGE, FURTHER = "counting-zeros", "counting-zeros-further"
EPSILON = 2.0**-52


def tables(name, words):
    """Return the lines under the heads of the tables whose captions have these words."""
    return [text.splitlines()[2:] for text in texts(name) if words in text.partition("\n")[0]]


@pytest.fixture(scope="module")
def page():
    return prose("notebooks/counting-zeros")


@pytest.fixture(scope="module")
def further():
    return prose("notebooks/counting-zeros-further")


@pytest.fixture(scope="module")
def rules():
    """By rule: rank, condition number and gap before training, and after it."""
    (lines,) = tables(PAGE, "seven rules, 2000 eigenvalues")
    cells = (line.rsplit(maxsplit=6) for line in lines)
    return {name: [None if cell == "-" else float(cell) for cell in row] for name, *row in cells}


def test_the_rules_on_one_network(page, further, rules):
    before, after = ({name: row[i : i + 3] for name, row in rules.items()} for i in (0, 3))
    kappas = [kappa for _, kappa, _ in after.values()]
    everyday = sorted(kappas)[:-1]  # all but the singular values, which few compute
    assert (f"{min(everyday):.0e}", f"{max(everyday):.0e}", f"{max(kappas):.0e}") == ("4e+03", "3e+10", "2e+13")
    assert "from $4 \\cdot 10^3$ to $3 \\cdot 10^{10}$, and the right one is $2 \\cdot 10^{13}$" in page
    assert (len(kappas), len(set(kappas))) == (7, 6)
    regular = [gap for _, kappa, gap in before.values() if kappa == 1.4e9]
    others = [gap for _, kappa, gap in before.values() if kappa != 1.4e9]
    assert "all 2,000 eigenvalues count:" in page and regular == [None] * 4
    assert "gap is 1." in page and others == [1.0] * 3
    margins = [1 / (1.4e9 * EPSILON**power) for power in (1, 2)]
    assert "is some $3 \\cdot 10^6$ for eigenvalues of $J J^\\top$, and $10^{22}$ for singular" in page
    assert [f"{margin:.0e}" for margin in margins] == ["3e+06", "1e+22"]
    rank, kappa, gap = after["singular values, relative"]
    assert "values find 1,538 eigenvalues and" in page
    assert (rank, kappa) == (1538, 1.8e13) and 1e18 < gap < 1e19
    stops, lower, missed = after["float64, relative"]
    assert "condition number 570 times as" in page
    ((untrained, trained),) = tables(PAGE, "gnlib.condition_number(net, x)")
    assert "here 570 was one" in page and untrained.split()[-1] == f"{margins[0]:.0e}"
    assert float(trained.split()[-1]) > 1e18 / 2
    assert "stops at 1,537, where the next eigenvalue is 570 times as" in further
    assert "right place, 1,538, theirs is 58." in further  # asserted in a cell
    left, *shown = sorted(int(rank) for rank, *_ in after.values())[1:]  # "the two others stop further left"
    assert left < 1499 and shown == [1519, 1530, 1537, 1537, 1538]
    assert (stops, missed) == (1537, 570) and kappa / lower == pytest.approx(570, rel=0.03)


def test_the_threshold_decides(page, further, rules):
    kappas = {name.partition(",")[0]: name.partition("κ ")[2].split(" → ") for name in slider(FURTHER)}
    assert "$\\tau = 10^{-10}$ the condition" in page
    assert {kappas[f"1e-{exponent}"][0] for exponent in range(10, 21)} == {"1.4e9"} != {kappas["1e-9"][0]}
    assert (
        "It is $3.2 \\cdot 10^{10}$ at $\\tau = 10^{-11}$, and $1.8 \\cdot 10^{13}$, the right value, at $10^{-14}$."
        in page
    )
    assert (kappas["1e-11"][1], kappas["1e-14"][1]) == ("3.2e10", "1.8e13")
    assert rules["singular values, relative"][4] == 1.8e13
    assert "are right, $10^{-15}$ and $10^{-14}$." in further
    assert [tau for tau, (_, after) in kappas.items() if after == "1.8e13"] == ["1e-15", "1e-14"]


def test_the_largest_wrong_gap(page):
    assert "gap of 570 was in" in page
    gaps = []
    for right, *others in (lines for name in (PAGE, FURTHER) for lines in tables(name, "seven rules")):
        assert right.startswith("singular values, relative")
        cells = [(line.split()[i - 2], right.split()[i - 2], line.split()[i]) for line in others for i in (-1, -4)]
        gaps += [float(gap) for rank, truth, gap in cells if rank != truth]
    assert max(gaps) == 570 and len(gaps) == 3 + 6 + 6 + 6


def test_the_margins_of_other_networks(page):
    said = "margins above $10^9$]"
    assert said in page
    (rows,) = tables(FURTHER, "two networks of other kinds, nk = 500")
    assert [row.split()[0] for row in rows] == ["CNN", "perceptron"]
    for row in rows:
        rank, trained, *_, margin, margin_trained = map(float, row.split()[1:])
        assert rank == trained == 500 and min(margin, margin_trained) > 1e9


def test_the_library_finds_the_rank(page, further, rules):
    ((before, after),) = tables(PAGE, "gnlib.condition_number(net, x)")
    ((_, trained, without),) = tables(FURTHER, "gnlib.condition_number(net, x)")
    free, rank = map(int, trained.split()[1:3])
    assert free - rank == 3 and f" {free}  {rank}  " in after
    bound, found = map(int, re.findall(r" (\d{4}) ", without))
    assert "of its 11 directions" in further and (found, free - bound) == (bound, 11)
    assert rank == rules["singular values, relative"][3] and before.split()[2:4] == ["2000", "2000"]
    assert "rank: 40 of 50" in "\n".join(texts(FURTHER))


def test_what_the_rule_misses_of_fifteen_units(page):
    images, labels = gnlib.load("mnist", 200, stride=2)
    net, _ = trained(15, images, labels, epochs=0)
    found = gnlib.condition_number(net, images)
    assert "rank with 15 ReLUs is 1,566." in page and "$\\kappa$ is $2 \\cdot 10^{14}$" in page
    assert found.rank == free_directions(net.weights(), images) == 1566
    assert found.value == pytest.approx(2.3e14, rel=0.02)
    later = gnlib.condition_number(trained(15, images, labels, epochs=100)[0], images)
    assert "At 15 units it" in page and later.value < found.value / 100
    assert 450 < found.rank - later.rank < 550  # "some 500 directions are lost"


def test_width_and_the_cap(page, further, rules):
    (live,), (kept,) = (tables(name, "caps κ at") for name in (PAGE, FURTHER))
    for lines, cap, said, where in ((live, 4200, "about 4,200", page), (kept, 840, "about 840", further)):
        assert {float(line.split()[i]) for line in lines[5:] for i in (3, 5)} == {cap} and said in where
    kappas = {int(line.split()[0]): [float(line.split()[i]) for i in (3, 5)] for line in live[:5]}
    assert (kappas[20][0], kappas[100][0]) == (1.4e9, 7.2e4)
    assert "falls from $1.4 \\cdot 10^9$ at 20 units to $7.2 \\cdot 10^4$ at 100, 20,000-fold." in page
    assert round(kappas[20][0] / kappas[100][0], -4) == 20_000
    assert kappas[30] == [1.9e6, 7.7e9]
    regular = [m for m in kappas if m >= 30]
    assert max(regular, key=lambda m: kappas[m][1] / kappas[m][0]) == 30
    assert "that of 30 units by a factor of 4,000, and lowers those of 50 and 100 by about" in page
    assert kappas[30][1] / kappas[30][0] == pytest.approx(4000, rel=0.05)
    assert [kappas[m][1] / kappas[m][0] for m in (50, 100)] == pytest.approx([2 / 3] * 2, abs=0.05)
    assert "At 20 units the float64 rule hides" in page
    before, after = (rules["singular values, relative"][i] for i in (1, 4))
    assert after / before > kappas[30][1] / kappas[30][0] > kappas[20][1] / kappas[20][0]
    assert "grows some 13,000-fold" in page and round(after / before, -3) == 13_000
    assert "has 1,564." in page and int(live[0].split()[4]) == 1564
    assert "from $2.8 \\cdot 10^{10}$ to $4.9 \\cdot 10^{10}$, where the" in page and kappas[15] == [
        2.8e10,
        4.9e10,
    ]
    singular = [tuple(int(line.split()[i]) < 2000 for i in (4, 6)) for line in live[:5]]  # hollow in the figure
    assert singular == [(True, True), (False, True), *[(False, False)] * 3]
    widest = kept[4].split()
    assert "that of 100 about [a" in further
    assert float(widest[5]) / float(widest[3]) == pytest.approx(110, abs=5) and int(widest[6]) == 10_000
    row = kept[3].split()
    assert "$m = 50$ loses a" in further
    assert int(row[6]) == pytest.approx(2 / 3 * int(row[4]), rel=0.02)
    assert 1e5 < float(row[5]) / float(row[3]) < 1e6


def test_the_directions_at_the_size_of_the_paper(further):
    (free,) = {row["directions"] for row in results.kept("counting-zeros") if (row["figure"], row["epoch"]) == (9, 0)}
    assert f"it has {free:,} directions for 10,000 eigenvalues" in further


def test_the_path_of_figure_10():
    page, rows = prose("notebooks/training"), [row for row in results.kept("training") if row["figure"] == 10]
    ends = {}
    for scale in ("small", "unit"):
        path = [row for row in rows if row["scale"] == scale]
        first, last = (
            sum(row["kappa"] for row in path if row["epoch"] == epoch) / 3
            for epoch in (0, max(r["epoch"] for r in path))
        )
        ends[scale] = first, max(row["kappa"] for row in path), last
    first, most, last = ends["small"]
    assert most == pytest.approx(2 * first, rel=0.1) and last == pytest.approx(first, rel=0.05)
    first, most, last = ends["unit"]
    assert last == pytest.approx(7 * first, rel=0.05)
    largest = max(row["lemma_2"] / row["kappa"] for row in rows)
    assert f"Lemma 2 is at most {largest:.2f} times as" in page


def test_noise_and_not_the_rate_keeps_kappa_up():
    page = prose("notebooks/training")
    cells = {tuple(line.split()[:2]): line.split()[2:] for line in table("training", "one network, κ after 200 epochs")}
    assert [float(cells[scale, "0.2"][0]) for scale in ("unit", "small")] == pytest.approx([0.31, 0.00031])
    assert cells["small", "200.0"][2:] == ["-", "-"] and cells["small", "200.0"][0] == cells["unit", "0.2"][0]
    start, *both = map(float, cells["small", "0.2"][1:])
    noisy, full = zip(*(map(float, cells["small", rate][2:]) for rate in ("20.0", "64.0")), strict=True)
    assert [round(kappa) for kappa in (*full, start)] == [8] * 3
    quiet = sorted(float(cells[row][3]) for row in cells if cells[row][3] != "-")
    said = f"Without noise $\\kappa$ is {quiet[0]:.0f} to {quiet[-1]:.0f} at this time, at every rate at which the"
    assert f"{said} loss falls." in page
    said = "With minibatches it is the higher, the larger the rate: {:.0f} and {:.0f} on small images."
    assert said.format(*noisy) in page and [round(kappa / start) for kappa in noisy] == [3, 12]
    share, _, unit, _ = cells["unit", "0.2"]
    assert f"are at {float(unit):.0f} at a third of the stable rate, small ones at {noisy[1]:.0f}" in page
    assert float(share) == pytest.approx(1 / 3, abs=0.03) and float(cells["small", "64.0"][0]) == 0.1
    assert len(set(both)) == 1 and "At 0.2 noise does" in page


def test_what_the_networks_of_pruning_do():
    page = prose("notebooks/training")
    ends = {
        name: [
            row["kappa"]
            for row in results.kept("pruning-further")
            if (row["network"], row["pruning"]) == (name, "none")
            and row["columns"] == "kept"
            and row["statistics"] != "running"
        ]
        for name in ("ResNet20", "ViT")
    }
    up, down = ((found[0], found[-1]) for found in ends.values())
    at_20 = ends["ResNet20"][1]
    assert {row["epoch"] for row in results.kept("pruning-further") if row["kappa"] == at_20} == {20}
    assert at_20 == max(ends["ResNet20"]) and at_20 / up[0] == pytest.approx(730, rel=0.01)
    assert "of a ResNet20 rises a" in page
    assert min(up[1] / up[0], down[0] / down[1]) > 80
    assert "of the ResNet20 goes from 430 to 58,000 in 100 epochs" in page
    assert up == pytest.approx((430, 58_000), rel=0.01)
    assert "transformer from 66 millions to 790,000 in 200" in page
    assert down == pytest.approx((66e6, 790_000), rel=0.01)
    said = "that of the ResNet20 rises some 730-fold by epoch 20 and ends {:.0f}-fold above its start, "
    said += "that of the ViT falls by a factor of {:.0f}, that of the MLP doubles."
    assert said.format(up[1] / up[0], down[0] / down[1]) in page
