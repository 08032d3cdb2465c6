"""The numbers in the text of "Transition to linearity" are those of its tables."""

import re

import pytest

from tests.pages.pages import cells, named, prose, says, texts

PAGE = "laboratory/transition-to-linearity"
TEXT = prose(f"notebooks/{PAGE}")
LAST = 0.88  # norm of the last weights, of any width


def norms():
    """Norm of the Hessian by width."""
    (lines,) = (text.splitlines()[1:] for text in texts(PAGE) if "norm at most" in text)
    return {line.split()[0]: float(line.split()[1]) for line in lines}


def test_the_kernel_moves_less_the_wider_the_network():
    rows = cells(PAGE, "relative change of the kernel, the distance")
    training, bad, way, before, after = ([*row[1:3], *map(float, row[3].split(" ± "))] for row in rows)
    share = f"{100 * training[1]:.0f} %"
    assert f"by {share} at" in TEXT and f"512 by {share}" in TEXT and f"makes {share}" in TEXT
    assert f"$m^{{{training[2]:.1f}}}$" in TEXT and f"${training[2]}$" in TEXT
    _, change, moved, loss = cells(PAGE, "100 steps, ten networks of each width")[-1]
    assert f"{change:.0f} %" == share and f"of {loss} there" in TEXT
    assert f"moves by {moved:.0f} %" in TEXT and f"$\\kappa$ by {moved:.0f} %" in TEXT
    assert f"to {moved:.0f} %" in TEXT and 1 - after[1] / before[1] < moved / 100
    assert f"is {100 / before[1]:.0f} %" in TEXT and abs(way[2]) <= way[3]
    assert training[2] + training[3] < -1 / 2 and bad[2] == pytest.approx(-1 / 2, abs=0.1)
    (lines,) = (text.splitlines()[1:] for text in texts(PAGE) if "layered bound / it" in text)
    (norm,) = (float(line.split()[1]) for line in lines if line.split()[0] == "512")
    assert says(TEXT, f"= {way[1]}$ ... about {norm:.2f} and {LAST}")
    assert f"about {round(100 * 2 * way[1] * norm / LAST, -1):.0f} %" in TEXT
    (printed,) = (text for text in texts(PAGE) if text.startswith("width 256: the kernel changes by "))
    assert f"by {printed.strip()[:-1].split()[-1]} %." in TEXT


def test_the_kernel_of_torchs_default_weights():
    (narrow, first, _, way, _), (middle, second, _, shorter, last), (wide, third, _, shortest, norm) = cells(
        PAGE, "torch.nn, 100 steps; medians of three"
    )
    assert (narrow, middle) == (64, 256) and f"width {wide:,.0f} it" in TEXT
    assert f"at width {wide:,.0f}" in TEXT
    assert [first, second] == pytest.approx([100] * 2, abs=10) and third == pytest.approx(33, abs=2)
    assert f"about {norm} at" in TEXT and last == norm and way > shorter > norm > shortest
    width, change, *_ = cells(PAGE, "100 steps, ten networks of each width")[-1]
    assert width == 512 and change < 10


def test_the_kernel_with_more_images():
    _, changes, *_, before, after = zip(*cells(PAGE, "width 512, random labels, 100 steps"), strict=True)
    assert changes[1] / changes[0] == pytest.approx(2, abs=0.2)
    most = max(abs(b / a - 1) for a, b in zip(before, after, strict=True))
    assert f"by {100 * most:.0f} %" in TEXT


def test_the_slopes_of_the_hessian_and_what_the_certificate_allows():
    slopes = [float(row[2].split()[0]) for row in cells(PAGE, "exponent of the norm of")]
    assert f"of {max(slopes):.2f} to {min(slopes):.2f}" in TEXT
    (caption,) = (re.match("the certificate is (.*) times", t) for t in texts(PAGE) if t.startswith("the certif"))
    assert float(caption[1]) == pytest.approx(20, rel=0.2)
    *_, (width, (_, allowed)) = named(PAGE, "allowed / found").items()
    assert f"width {width:.0f} nearly" in TEXT and 380 < allowed < 400
    shares = [norms()[m] * (2 * LAST + norms()[m]) / LAST**2 for m in ("100,000", "10,000,000")]
    said = "about {:.0f} % ... about {:.0f} %"
    assert says(TEXT, said, *(100 * share for share in shares))
