"""What "Quick start" promises at its top is what its table shows."""

from tests.book.pages import prose, table


def test_times_sooner():
    sooner = [float(line.split()[-2]) for line in table("quick-start", "steps to a cross-entropy of")]
    assert [int(min(sooner)), int(max(sooner))] == [2, 9] and len(sooner) == 3
    assert "They then train two to nine times sooner, each at its best learning rate." in prose("notebooks/quick-start")


def test_advice_for_adam():
    mlp, *others = table("quick-start", "what the reports suggest for Adam")
    *_, now, then = mlp.split()
    assert int(now) > 2 * int(then)  # "saves more than a factor of two"
    sane = [line.split("  ")[0] for line in others if "nothing" in line]
    assert sane == ["MLP, inputs standardised", "CNN, GroupNorm"]
