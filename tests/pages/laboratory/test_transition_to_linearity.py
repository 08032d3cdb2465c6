"""The findings of the laboratory's "Transition to linearity", by its tables."""

import re

import pytest

from tests.pages.pages import cells, named, texts

PAGE = "laboratory/transition-to-linearity"
LAST = 0.88  # norm of the last weights, of any width


def norms():
    """Norm of the Hessian by width."""
    (lines,) = (text.splitlines()[1:] for text in texts(PAGE) if "norm at most" in text)
    return {line.split()[0]: float(line.split()[1]) for line in lines}


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


def test_the_kernel_of_torchs_default_weights():
    (narrow, first, _, way, _), (middle, second, _, shorter, last), (wide, third, _, shortest, norm) = cells(
        PAGE, "torch.nn, 100 steps; medians of three"
    )
    assert (narrow, middle, wide) == (64, 256, 1024)
    assert [first, second] == pytest.approx([100] * 2, abs=10) and third == pytest.approx(33, abs=2)
    assert last == norm == 0.58 and way > shorter > norm > shortest
    width, change, *_ = cells(PAGE, "100 steps, ten networks of each width")[-1]
    assert width == 512 and change < 10


def test_the_kernel_with_more_images():
    _, changes, *_, before, after = zip(*cells(PAGE, "width 512, random labels, 100 steps"), strict=True)
    assert changes[1] / changes[0] == pytest.approx(2, abs=0.2)
    most = max(abs(b / a - 1) for a, b in zip(before, after, strict=True))
    assert most == pytest.approx(0.06, abs=0.005)


def test_the_slopes_of_the_hessian_and_what_the_certificate_allows():
    slopes = [float(row[2].split()[0]) for row in cells(PAGE, "exponent of the norm of")]
    assert (round(max(slopes), 2), round(min(slopes), 2)) == (-0.40, -0.49)
    (caption,) = (re.match("the certificate is (.*) times", t) for t in texts(PAGE) if t.startswith("the certif"))
    assert float(caption[1]) == pytest.approx(20, rel=0.2)
    *_, (width, (_, allowed)) = named(PAGE, "allowed / found").items()
    assert width == 256 and 380 < allowed < 400
    shares = [norms()[m] * (2 * LAST + norms()[m]) / LAST**2 for m in ("100,000", "10,000,000")]
    assert shares == pytest.approx([0.55, 0.05], abs=0.005)
