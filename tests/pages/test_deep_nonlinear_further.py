"""The numbers in the text of the further experiments with depth and activations are those of their tables."""

import re
from itertools import pairwise

import pytest
import torch
from gnbook import results
from gnbook.deep_nonlinear.chain import kernel, layers_of
from gnbook.deep_nonlinear.networks import ACTIVATIONS, network
from gnbook.deep_nonlinear.wide_limit import deep_relu_condition, wide_kernel

import gnlib
from tests.pages.pages import ROOT, prose, table


@pytest.fixture(scope="module")
def text():
    return prose("notebooks/deep-nonlinear-further")


@pytest.fixture(scope="module")
def chapter():
    return prose("notebooks/deep-nonlinear")


def numbers(words):
    return [float(word.replace(",", "")) for word in words]


@pytest.fixture(scope="module")
def chains():
    """Depth, kappa, its limit, the bound from below, the sharper and the plain one, of each network."""
    lines = [line.split() for line in table("deep-nonlinear-further", "condition number and its bounds")]
    return {(line[0], " ".join(line[1:-6]), int(line[-6])): numbers(line[-5:]) for line in lines}


@pytest.fixture(scope="module")
def tightness():
    lines = [line.rsplit(maxsplit=6) for line in table("deep-nonlinear-further", "bounds over the condition number")]
    found = [(*head.split(maxsplit=2), numbers(words)) for head, *words in lines]
    return {(kind, name): ratios for kind, name, bound, ratios in found if bound == "sharper"}


def test_the_bound_is_within_a_factor_of_six(text, chains):
    ratios = [sharper / kappa for kappa, _, _, sharper, _ in chains.values()]
    assert "six at 800 units" in text and 5 < max(ratios) < 6 and min(ratios) >= 1 - 1e-3
    claims = (ROOT / "book" / "claims-deep-nonlinear.md").read_text()
    assert "factor of 2.3 in the" in claims
    assert 2 < max(kappa / below for kappa, _, below, _, _ in chains.values()) < 2.3


def test_how_far_wide_networks_are_from_the_limit(text, chains):
    ratios = [kappa / limit for (_, name, _), (kappa, limit, *_) in chains.items() if name == "ReLU"]
    assert f"of width 800 have {min(ratios):.1f} to {max(ratios):.1f} times that" in text


def test_depth_improves_raw_images_and_not_white_ones(chains):
    for kind, name, depth in chains:
        if depth == 8:
            deep, shallow = chains[kind, name, 8][0], chains[kind, name, 2][0]
            better = kind == "raw" and name in ("ReLU", "leaky ReLU", "tanh")
            assert deep < shallow / 6 if better else deep > shallow


def test_at_the_papers_size(text):
    kept = [row for row in results.kept("deep-nonlinear") if row["shape"] == "chain"]
    kappas = {(row["data"], row["activation"], row["depth"]): row["kappa"] for row in kept}
    for name, words in (("ReLU", "20,900 to 7,330 with ReLUs"), ("tanh", "131,000 to 4,400 with tanh")):
        ends = [float(f"{kappas['raw', name, depth]:.3g}") for depth in (2, 8)]
        assert words in text and words.startswith("{:,.0f} to {:,.0f}".format(*ends))
    assert kappas["raw", "linear", 8] / kappas["raw", "linear", 2] == pytest.approx(3, abs=0.3)
    white = [row["sharper"] / row["kappa"] for row in kept if row["data"] == "white"]
    raw = [row["sharper"] / row["kappa"] for row in kept if row["data"] == "raw" and row["activation"] != "linear"]
    assert 8 < max(white) < 9
    assert f"by {min(raw):.0f} to {max(raw):.0f} at 5,000 rows" in text
    assert f"it is {min(raw):.0f} to {max(raw):.0f} times as" in text


def test_where_the_bound_is_tight(text, tightness):
    white = [ratio for (kind, _), ratios in tightness.items() if kind.startswith("white") for ratio in ratios]
    assert max(white) < 3
    assert "up to 18 with tanh" in text and max(tightness["raw,", "tanh"]) == pytest.approx(18, abs=0.5)
    assert 10 < max(tightness["raw,", "ReLU"]) < 100
    assert "At 1,600 units it is within 1.9." in text and max(ratios[-1] for ratios in tightness.values()) < 1.9


def test_layer_norm_does_what_one_norm_does(text, chapter):
    lines = [
        line.replace(" to ", " ").split()
        for line in table("deep-nonlinear-further", "condition number of ReLU networks, raw")
    ]
    _, chain, scaled, normalised, least, most = zip(*map(numbers, lines), strict=True)
    said = f"factor of {min(least):.1f} to {max(most):.1f} on raw"
    assert said in text and said in chapter
    of_first = [before / after for before, after in zip(chain, normalised, strict=True)]
    assert all(low - 0.01 < gain < high + 0.01 for low, gain, high in zip(least, of_first, most, strict=True))
    assert all(1 < one / after < 1.25 for one, after in zip(scaled, normalised, strict=True))  # most of it


def test_along_the_training(text):
    paths = {}
    for line in table("deep-nonlinear-further", "along gradient descent"):
        kind, name, *rest = line.split()
        what = " ".join(rest[:-7])
        paths[kind, name, what] = numbers(rest[-7:])
    spans = {key: max(values) / min(values) for key, values in paths.items() if key[2] in ("κ", "bound / κ")}
    follow = [(kind, name) for kind, name, what in paths if what == "κ" and (kind == "white," or name == "linear")]
    assert len(follow) == 4
    assert max(spans[*key, "bound / κ"] for key in follow) < 1.2 and max(spans[*key, "κ"] for key in follow) < 1.7
    first = [values[1] for (_, _, what), values in paths.items() if what == "moved"]
    assert "They are 8 and more" in text and min(first) >= 8


def test_gelu_gains_nothing_on_raw_images(text, chains):
    ends = [chains["raw", "GELU", depth][0] for depth in (2, 8)]
    assert "is {:,.0f} with two layers and {:,.0f} with eight".format(*ends) in text and ends[1] > ends[0]


def test_what_preparing_raw_images_does(text, chains):
    lines = [
        line.rsplit(maxsplit=4) for line in table("deep-nonlinear-further", "κ of networks of width 800, prepared")
    ]
    found = {tuple(re.split(r"\s{2,}", head)): numbers(kappas) for head, *kappas in lines}
    gains = {key: kappas[0] / kappas[-1] for key, kappas in found.items()}
    less, standard = "less the mean image, at rms 1", "standardised"
    gelu = [gains["GELU", kind] for kind in ("at rms 1", standard, less)]
    said = (
        "at rms 1 it gains a factor of {:.0f}, standardised (one mean, one scale) {:.0f}, less the mean image {:.0f}."
    )
    assert said.format(*gelu) in text
    eight = [found["GELU", kind][-1] for kind in ("at rms 1", less)]
    assert "At rms 1 eight layers have {:.0f}, less the mean image {:.0f}.".format(*eight) in text
    assert found["GELU", less][0] == min(found["GELU", kind][0] for kind in ("raw", "at rms 1", standard, less))
    assert min(gains["tanh", "raw"], gains["tanh", "at rms 1"]) > 6
    relu = [gains["ReLU", kind] for kind in (less, "raw", standard)]
    assert "factor of {:.0f}, in place of {:.0f}; standardised it is {:.0f}.".format(*relu) in text
    assert f"{ACTIVATIONS['GELU'].gain:.2f} that keeps" in text
    assert all(gains["GELU, gain √2", kind] < gains["GELU", kind] for kind in (standard, less))
    assert found["ReLU", "raw"] == [float(f"{chains['raw', 'ReLU', depth][0]:.3g}") for depth in (2, 3, 5, 8)]
    images = gnlib.load("mnist", 60, stride=2)[0]
    assert f"(rms) of {images.square().mean().sqrt().item():.2f}" in text
    relu = network("ReLU", "chain", [196, 100, 100, 5], generator=torch.Generator().manual_seed(0))
    assert float(gnlib.condition_number(relu, 3 * images)) == pytest.approx(
        float(gnlib.condition_number(relu, images)), rel=1e-6
    )


def test_from_which_depth_the_limit_counts(text):
    rows = {
        line.split()[0]: numbers(line.split()[2:])
        for line in table("deep-nonlinear-further", "ReLU networks of infinite")
    }
    depths, raw, white = (8, 20, 50, 100), rows["raw"], rows["white"]
    assert "from some 50 layers on," in text
    assert [1 < ratio < 2 for ratio in raw] == [depth >= 50 for depth in depths]
    assert "factor of 1.7 at all" in text and 1 < min(white) and max(white) < 1.7


def test_how_the_deviation_falls_with_the_width(text):
    falls = [
        wide / narrow
        for _, narrow, _, wide in map(numbers, map(str.split, table("deep-nonlinear-further", "deviation")))
    ]
    assert "From 32 to 512 units the" in text
    assert len(falls) == 2 and 1 / 3 < min(falls) < max(falls) < 0.4


def test_images_of_several_norms_have_a_larger_limit(text):
    norms = gnlib.load("mnist", 60, stride=2)[0].norm(dim=1)
    limits = deep_relu_condition(norms), deep_relu_condition(norms / norms)
    assert "limit is {:.0f}, not {:.0f}.".format(*limits) in text


def test_networks_of_fifty_layers_are_above_the_limit(text):
    rows = {
        line.split("  ")[0]: line.split("  ")[-1]
        for line in table("deep-nonlinear-further", "ReLU networks of 50 layers")
    }
    low, high = map(float, rows["width 800, three networks"].split(" to "))
    limit = float(rows["(n + 3) / 3"])
    assert "At width 800 they have" in text and 2 < low / limit < high / limit < 3


def test_what_skips_keep_of_depth(text):
    lines = [re.split(r"\s{2,}", line) for line in table("deep-nonlinear-further", "ReLU networks of 8 layers, lowest")]
    found = {name: [numbers(words.split(" to ")) for words in rest if words != "-"] for name, *rest in lines}
    branches = list(found.values())[1:4]  # of strength 1, over the root of L, over L
    _, raw, _, white = branches[0]
    larger, smaller = [100 * (ratio - 1) for ratio in raw], [100 * (1 - ratio) for ratio in reversed(white)]
    said = "{:.0f} to {:.0f} % larger than without skips on raw images, and {:.0f} to {:.0f} % smaller"
    assert said.format(*larger, *smaller) in text
    raw, white = ([shape[column] for shape in branches] for column in (1, 3))
    assert all(before[1] < after[0] for before, after in pairwise(raw))
    assert all(before[0] > after[1] for before, after in pairwise(white[:2]))
    assert found["LayerNorm"][1][1] < 1 and found["LayerNorm"][3][0] > 0.85


def test_branches_of_one_over_the_depth_leave_one_hidden_layer(text):
    images = gnlib.load("mnist", 60, stride=2)[0]
    assert "some 30 % below that of a single hidden layer (L = 2) on raw" in text
    for data, low, high in ((images, 0.65, 0.75), (gnlib.whiten(images), 1.0, 1.1)):
        kappas = []
        for depth in (2, 3):
            widths = [196, *[800] * (depth - 1), 5]
            nets = [network("ReLU", "skips / L", widths, generator=torch.Generator().manual_seed(s)) for s in range(3)]
            values = [torch.linalg.eigvalsh(kernel(layers_of(net, data))) for net in nets]
            kappas.append(torch.stack([found[-1] / found[0] for found in values]).log().mean().exp().item())
        assert low < kappas[1] / kappas[0] < high


def test_two_kinds_of_infinite_width(text, chains):
    white = gnlib.whiten(gnlib.load("mnist", 60, stride=2)[0])
    relu = ACTIVATIONS["ReLU"]
    values = torch.linalg.eigvalsh(
        wide_kernel(white / white.norm(dim=1, keepdim=True), relu.dual, [0, 1], gain=relu.gain)
    )
    as_drawn = chains["white", "ReLU", 2][1]
    said = "κ of {:.0f} on white images here, and of {:.1f} there"
    assert said.format((values[-1] / values[0]).item(), as_drawn) in text


def test_what_depth_gains_in_kappa_with_more_images(text, chapter, chains):
    kept = [row for row in results.kept("deep-nonlinear") if (row["data"], row["shape"]) == ("raw", "chain")]
    ends = {(row["activation"], row["depth"]): row["kappa"] for row in kept if row["depth"] in (2, 8)}
    gain = chains["raw", "ReLU", 2][0] / chains["raw", "ReLU", 8][0]
    of_many = ends["ReLU", 2] / ends["ReLU", 8]
    assert f"factor of {gain:.0f} with 60 images, and of {of_many:.1f} with 500." in chapter
    assert round(gain) == 11 and round(of_many) == 3
    assert f"rises by a factor of {ends['GELU', 8] / ends['GELU', 2]:.1f}." in text


def test_the_smallest_condition_number_is_that_of_images_less_their_mean(text, chapter, chains):
    said = "to rms 1 gives the"
    assert said in text
    lines = [
        line.rsplit(maxsplit=4) for line in table("deep-nonlinear-further", "κ of networks of width 800, prepared")
    ]
    found = {tuple(re.split(r"\s{2,}", head)): numbers(kappas) for head, *kappas in lines}
    for name in ("ReLU", "GELU", "tanh"):
        own = {images: kappas for (which, images), kappas in found.items() if which == name}
        smallest = own["less the mean image, at rms 1"]
        assert smallest == [min(each) for each in zip(*own.values(), strict=True)]
        assert all(chains["white", name, depth][0] < kappa for depth, kappa in zip((2, 3, 5, 8), smallest, strict=True))
    less, raw = ([found["ReLU", kind][at] for at in (0, -1)] for kind in ("less the mean image, at rms 1", "raw"))
    said = "falls from {:,.0f} with two layers to {:,.0f} with eight, on raw ones from {:,.0f} to {:,.0f}."
    assert said.format(*less, *raw) in text
    assert "rms of 1 it gains a factor of 7." in text
    at_rms_1 = found["GELU", "at rms 1"]
    assert round(at_rms_1[0] / at_rms_1[-1]) == 7


def test_white_images_in_a_deep_network(chapter, chains):
    (shallow, *_), (deep, *_) = (chains["white", "ReLU", depth] for depth in (2, 8))
    assert f"factor of {deep / shallow:.1f} from two" in chapter


def test_the_table_of_many_images_is_the_kept_one():
    kept = [row for row in results.kept("deep-nonlinear") if row["shape"] == "chain"]
    kappas = {(row["data"], row["activation"], row["depth"]): row["kappa"] for row in kept}
    lines = [line.rsplit(maxsplit=4) for line in table("deep-nonlinear-further", "κ, 500 images at full resolution")]
    assert len(lines) == 10
    for head, *shown in lines:
        kind, name = head.split(maxsplit=1)
        of_kept = [kappas[kind, name.strip(), depth] for depth in (2, 3, 5, 8)]
        assert numbers(shown) == [pytest.approx(kappa, rel=0.006, abs=0.05) for kappa in of_kept]


def rows_of(start, names=2):
    """By the words at the left of each row, its numbers."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in table("deep-nonlinear-further", start)]
    return {
        tuple(cells[:names]): [None if word == "-" else numbers([word])[0] for word in cells[names:]] for cells in lines
    }


def test_three_runs_of_a_shallow_and_of_a_deep_network(text):
    found = rows_of("steps until that share")
    pairs = [(found[seed, "2"], found[seed, "8"]) for seed in "012"]
    assert all(deep[at] > shallow[at] for shallow, deep in pairs for at in (0, 1))
    saved = [1 - deep[2] / shallow[2] for shallow, deep in pairs]
    said = "it needs {:.0f} % and {:.0f} % fewer steps with the first two, and {:.0f} % more"
    assert said.format(*(100 * abs(share) for share in saved)) in text and saved[1] > 0 > saved[2]
    ends = [deep[3] for _, deep in pairs]
    assert f"{min(ends):,.0f} to {max(ends):,.0f} steps, where two layers are not there after 2,500" in text
    assert max(ends) <= 0.75 * 2500
    assert all(shallow[3] is None for shallow, _ in pairs)


def test_three_runs_with_skips(text, chapter):
    steps, kappas = rows_of("steps down to a loss of 0.005, three"), rows_of("κ at the start, three seeds")
    names = [name for name, kind in steps if kind == "raw"]
    assert len(names) == 5 and [names[0], *names[3:]] == ["2 layers", "8, branches / L", "8, LayerNorm"]
    raw, less = ([steps[name, kind] for name in names] for kind in ("raw", "less"))
    two, plain, full, weak, norm = less
    assert "branches of $1/L$ are the" in text
    assert all(max(a, b) < min(others) for a, b, *others in zip(two, weak, plain, full, norm, strict=True))
    assert "the seeds 0 and 2, and level with seed 1" in text
    (a, b, c), (d, e, f) = raw[1], raw[0]
    assert a < d and c < f and abs(b - e) < 3
    last = {name: kappas[name, "less"][2] for name in names}
    assert "branches of $1/L$ have the" in text
    assert min(last, key=last.get) == "8, branches / L" and max(last, key=last.get) == names[2]
    lowered = [norm < plain for norm, plain in zip(kappas[names[4], "raw"], kappas[names[1], "raw"], strict=True)]
    assert "it with seed 2" in text and lowered == [True, True, False]
    assert "At 200 units one" in chapter
    plain, full, weak = (kappas[name, "less"] for name in names[1:4])
    assert "branches of $1/L$ raise it" in text
    assert sum(of_weak > of_plain for of_weak, of_plain in zip(weak, plain, strict=True)) == 2
    assert all(0.8 < of_full / of_plain < 1.25 for of_full, of_plain in zip(full, plain, strict=True))


def test_white_images_layer_by_layer(text):
    lines = [re.split(r"\s{2,}", line) for line in table("deep-nonlinear-further", "condition numbers κ by layer")]
    profile = {(kind, what): numbers(values) for kind, what, *values in lines}
    assert "with $\\kappa = 1$." in text
    for name in ("ReLU", "linear"):
        features = profile[f"white, {name}", "features"]
        assert features[0] == 1 and features == sorted(features)
    contributions = profile["white, ReLU", "contribution"]
    assert contributions == sorted(contributions)
    features = profile["raw, ReLU", "features"]
    assert 0.45 < features[1] / features[0] < 0.55 and max(features[1:]) < 1.3 * min(features[1:])


def test_weak_branches_are_the_fastest_of_the_deep_networks_with_each_seed():
    lines = [
        re.split(r"  +", line.strip()) for line in table("deep-nonlinear-further", "steps down to a loss of 0.005")
    ]
    steps = {(name, images): list(map(int, runs)) for name, images, *runs in lines}
    weak, plain = steps["8, branches / L", "less"], steps["8, no skips", "less"]
    deep = [runs for (name, images), runs in steps.items() if name.startswith("8") and images == "less"]
    assert all(fastest == min(runs) for fastest, runs in zip(weak, zip(*deep, strict=True), strict=True))
    assert all(less > raw for less, raw in zip(plain, steps["8, no skips", "raw"], strict=True))
