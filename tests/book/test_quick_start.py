"""What "Quick start" promises at its top is what its table shows."""

import re

import torch
from torch import nn

import gnlib
from tests.book.pages import prose, table, texts


def test_times_sooner():
    sooner = [float(line.split()[-3]) for line in table("quick-start", "steps to a cross-entropy of")]
    assert len(sooner) == 3 and 2 < min(sooner) and 8.5 < max(sooner) < 10.5  # not the same on every machine
    said = "They then train two to ten times sooner, each at its best learning rate."
    assert said in prose("notebooks/quick-start")


def test_standardised_inputs_leave_no_dead_units():
    images = gnlib.load("cifar10", 256, stride=2)[0].view(256, 3, 16, 16)
    few = images[:50]
    standardised = (images - few.mean((0, 2, 3), keepdim=True)) / few.std((0, 2, 3), keepdim=True)
    torch.manual_seed(0)
    layers = nn.Linear(768, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
    network = nn.Sequential(nn.Flatten(), *layers).double()
    dead = [sum(int((network[:end](x) == 0).all(0).sum()) for end in (3, 5)) for x in (few, images, standardised)]
    said = "Of the {} dead units here {} are dead on 256 images too, and none with the inputs standardised."
    assert said.format(*dead[:2]) in prose("notebooks/quick-start") and dead[2] == 0


def test_overstated_at_most_by_three():
    rows = [line.split() for line in table("quick-start", "to the loss that the report names")]
    ratios = [float(foretold) / float(real) for *_, foretold, real in rows]
    assert f"With another end the {rows[-1][-2]} would be another number." in prose("notebooks/quick-start")
    assert min(ratios) > 1.2 and 2 < max(ratios) < 3.2  # the runs differ a little from machine to machine
    assert "overstates, by a factor of about three at most" in prose("notebooks/quick-start")


def test_advice_for_adam():
    mlp, *others = table("quick-start", "what the reports suggest for Adam")
    *_, now, then, foretold = mlp.split()
    before, after = adam_steps()
    assert float(foretold) == int(now) / int(then) > 2  # "is above two"
    sane = [line.split("  ")[0] for line in others if "nothing" in line]
    assert sane == ["asked again, inputs standardised", "CNN, GroupNorm"]
    text = prose("notebooks/quick-start")
    assert f"{float(foretold):.0f} foretold, {before / after:.0f} real" in text
    assert f"These {now} steps are for twenty images in one batch;" in text
    assert f"on 256 images it takes {before} real ones" in text


def adam_steps():
    """Steps before and after the change."""
    (line,) = (text for text in texts("quick-start") if "steps of Adam" in text)
    return [int(word) for word in line.split() if word.isdigit()][:2]


def test_what_adam_leaves_of_the_other_two_remedies():
    *_, cnn, transformer, _ = table("your-own-network", "steps of Adam to a")
    (*_, of_cnn, not_suggested, _), (*_, of_transformer, foretold, _) = cnn.split(), transformer.split()
    text = prose("notebooks/quick-start")
    assert not_suggested == "-" and f"is not suggested, and saves a factor of {of_cnn}" in text
    assert f"weights of 0.02 anew [is foretold {foretold} and saves {of_transformer}]" in text


def test_two_losses_have_two_condition_numbers():
    """That of the squared error is printed first, that of the cross-entropy last, as in the report."""
    found = texts("quick-start")
    first, last = (next(text for text in found if text.startswith(start)) for start in ("condition number ", "kappa "))
    of_cross_entropy = last.split()[1]
    assert float(first.split()[-1]) > float(of_cross_entropy)
    page = prose("notebooks/quick-start")
    assert f"The report below has {of_cross_entropy}, for it takes the cross-entropy" in page


def test_layer_norm_lowers_kappa_on_another_page():
    there = prose("notebooks/deep-nonlinear")
    (said,) = re.findall(r"LayerNorm is worth a factor of (\S+ to \S+) on raw images", there)
    assert f"without biases and on raw images of MNIST it does, by {said}." in prose("notebooks/quick-start")
    (line,) = (text for text in texts("quick-start") if text.startswith("kappa "))
    before, after = (float(word.rstrip(",")) for word in line.split()[1:4:2])
    assert before < after


def test_how_far_a_factor_for_adam_is_overstated():
    """Why its bar is lower."""
    lines = [line.split() for line in table("your-own-network", "steps of Adam to a")]
    ratios = [float(foretold) / float(real) for *_, real, foretold, _ in lines if foretold != "-"]
    assert len(ratios) == 4 and 1.3 < max(ratios) < 1.4
    assert "none of the four is overstated by more than 1.4" in prose("notebooks/quick-start")


def test_it_is_the_same_rule_on_all_pages():
    for page in ("quick-start", "your-own-network", "ten-minutes"):
        text = prose(f"notebooks/{page}")
        assert "bove three under gradient descent, above two under Adam: do it" in text
        assert "Below: time it on a short run, or do it if it is free." in text


def test_the_line_that_is_printed_is_of_adam():
    of_descent, line = (text for text in texts("quick-start") if text.startswith("try: "))
    assert "of gradient descent" in " ".join(of_descent.split())
    assert "of Adam" in " ".join(line.split())


def test_the_factor_of_the_first_try():
    shown = " ".join(next(text for text in texts("quick-start") if text.startswith("try: centre the inputs")).split())
    then, now = map(int, re.search(r"(\d+) steps of gradient descent, not (\d+),", shown).groups())
    assert f"here {now} / {then} = {now / then:.0f}." in prose("notebooks/quick-start")


def test_a_larger_condition_number_and_no_more_steps():
    (line,) = (text for text in texts("quick-start") if re.match(r"kappa \S+ to \S+, steps", text))
    before, after, slow, soon = re.match(r"kappa (\S+) to (\S+), steps (\d+) to (\d+)", line).groups()
    assert float(after) > float(before) and int(soon) < int(slow)
    said = "LayerNorm does not slow the training down, although $\\kappa$ rises:"
    assert f"{said} {slow} steps before, {soon} after." in prose("notebooks/quick-start")
