"""The findings of "Convolutions", by the tables of its pages."""

from tests.pages.pages import cells, named

FIRST, SECOND = "laboratory/convolution", "laboratory/convolution-further"


def choices():
    """From the change that a network makes to its limit, its condition number and the steps of training."""
    return named(FIRST, "gradient descent; medians")


def test_what_each_choice_does():
    plain, few, *_ = choices().values()
    assert [*choices()] == ["kernel 3, 32 filters", "4 filters", "kernel 7", "three layers", "first stride 3"]
    by_kappa, by_steps, by_late = (sorted(choices(), key=lambda name: choices()[name][i]) for i in (1, 2, 3))
    assert by_kappa == by_late and few[3] < 8 * plain[3]
    assert by_steps[-1] == by_kappa[2] == "4 filters"


def test_ways_to_a_window():
    rows = cells(FIRST, "whitened squares of MNIST; κ")
    ends = [row[4] for row in rows[:4]]
    assert [row[:2] for row in rows[:4]] == [[1, 3], [2, 3], [3, 3], [4, 3]] and ends == sorted(ends)
    ways = {int(row[0]): row[3] for row in rows if row[2] == 7}
    assert ways[1] < ways[2] < ways[3] and len(ways) == 3


def test_with_a_relu_more_filters_raise_kappa_and_leave_the_loss():
    rows = {}
    for kernel, stride, filters, *found in cells(FIRST, "with a ReLU between the layers"):
        rows.setdefault((kernel, stride), {})[filters] = found
    assert [*rows] == [(3, 1), (7, 1), (3, 3)] and all([*pair] == [4, 16] for pair in rows.values())
    ratios = []
    for (kernel, _), pair in rows.items():
        few, many = pair.values()
        assert many[0] / few[0] >= 50 and max(abs(a - b) for a, b in zip(few[3:], many[3:], strict=True)) <= 0.031
        assert [few[1], many[1]] == [m * (2 * kernel**2 - 1) for m in pair]
        ratios.append(many[2] / few[2])
    assert min(ratios) < 1 / 2 and all(1 / 1.6 < ratio < 1.6 for ratio in ratios[:2])
    for small, large, apart in zip(*(pair.values() for pair in rows.values()), strict=True):
        assert small[0] < large[0] and 1 / 1.5 < apart[0] / small[0] < 1.5
        assert all(a < min(b, c) for a, b, c in zip(small[3:], large[3:], apart[3:], strict=True))
