"""The findings of the laboratory's "Transition to linearity", by its tables."""

import pytest

from tests.pages.pages import cells, texts

PAGE = "laboratory/transition-to-linearity"
LAST = 0.88  # norm of the last weights, of any width


def test_the_kernel_moves_less_the_wider_the_network():
    rows = cells(PAGE, "relative change of the kernel, the distance")
    training, bad, way, before, after = ([*row[1:3], *map(float, row[3].split(" ± "))] for row in rows)
    _, change, moved, loss = cells(PAGE, "100 steps, ten networks of each width")[-1]
    assert change == round(100 * training[1]) == 7 and moved == 4 and loss == pytest.approx(1.7, abs=0.05)
    assert 1 - after[1] / before[1] < moved / 100 and 100 / before[1] == pytest.approx(3, abs=0.5)
    assert abs(way[2]) <= way[3]
    assert training[2] + training[3] < -1 / 2 and bad[2] == pytest.approx(-1 / 2, abs=0.1)
    (lines,) = (text.splitlines()[1:] for text in texts(PAGE) if "layered bound / it" in text)
    (norm,) = (float(line.split()[1]) for line in lines if line.split()[0] == "512")
    assert 2 * way[1] * norm / LAST == pytest.approx(1.5, abs=0.1)  # what the worst case allows


def test_the_kernel_with_more_images():
    _, changes, *_, before, after = zip(*cells(PAGE, "width 512, random labels, 100 steps"), strict=True)
    assert changes[1] / changes[0] == pytest.approx(2, abs=0.2)
    most = max(abs(b / a - 1) for a, b in zip(before, after, strict=True))
    assert most == pytest.approx(0.06, abs=0.005)
