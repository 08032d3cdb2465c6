"""Pictures of a report as SVG that stands in a page of HTML, drawn with matplotlib where that is installed."""

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from gnlib.eigen.density import SpectralDensity

SIZE = 4.6, 2.9  # inches: at 420 pixels it is as large as it is drawn, so its letters are those of the text
INK = "#010203"  # stands for the colour of the text
SERIES = ("#010011", "#010022", "#010033")  # and these for colours of the page, which differ in light and in dark
MOST, LETTERS = 10, 22  # layers in a picture, and of a name
DOTS = 500  # a line takes less room than more of them
SETTINGS: dict[str, Any] = {
    **{"svg.fonttype": "none", "svg.hashsalt": "gnlib", "figure.facecolor": "none", "axes.facecolor": "none"},
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    **{"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False},
    **{"axes.grid": True, "grid.color": INK, "grid.alpha": 0.15, "axes.axisbelow": True},
}

Drawing = tuple[Callable[[Any], None], str]
"""A function that draws into the axes of matplotlib, and a sentence that says what is to be seen."""


def picture(draw: Callable[[Any], None], says: str) -> str:
    """Return a figure with what it says below it; nothing where matplotlib is not installed."""
    try:
        from matplotlib import style
        from matplotlib.figure import Figure
    except ImportError:
        return ""
    with style.context(["default", SETTINGS]):
        figure, file = Figure(SIZE, layout="constrained"), io.StringIO()
        draw(figure.add_subplot())
        figure.savefig(file, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    svg = file.getvalue().partition("<svg")[2].replace(INK, "currentColor")
    for i, colour in enumerate(SERIES):
        svg = svg.replace(colour, f"var(--series-{i})")
    head, _, body = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", svg).partition(">")
    box = re.search('viewBox="[^"]*"', head)
    start = f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" {box[0] if box else ""} role="img"'
    return f'<figure>{start} aria-label="{escape(says)}">{body}<figcaption>{escape(says)}</figcaption></figure>'


def spectrum(values: Sequence[float], rank: int, waits_for: float | None) -> Drawing:
    """Draw the eigenvalues that are not zero, descending, and the one that training waits for."""
    kept = [value for value in values[:rank] if value > 0]

    def draw(axes: Any) -> None:
        axes.plot(
            range(1, len(kept) + 1), kept, "." if len(kept) <= DOTS else "-", color=SERIES[0], label="eigenvalues"
        )
        if waits_for:
            axes.axhline(waits_for, color=SERIES[1], linestyle="--", label="waited for")
            axes.legend()
        axes.set(yscale="log", xlabel="number of the eigenvalue", ylabel="eigenvalue")

    says = f"Spectrum: {len(kept):,} eigenvalues from {kept[0]:.3g} to {kept[-1]:.3g}"
    says += f"; {len(values) - len(kept):,} more are not told from zero" * (len(kept) < len(values))
    return draw, says + (f". Training waits for {waits_for:.3g}." if waits_for else ".")


def density(measured: SpectralDensity) -> Drawing:
    """Draw the bounds between which the number of eigenvalues up to each value lies."""
    values = np.geomspace(measured.smallest, 1.01 * measured.largest, 100)
    low, high = zip(*(measured.below(float(value)) for value in values), strict=True)

    def draw(axes: Any) -> None:
        axes.fill_between(values, low, high, color=SERIES[0], alpha=0.5)
        axes.set(xscale="log", xlabel="eigenvalue", ylabel="eigenvalues up to it", ylim=(0, None))

    says = f"Density: {measured.size:,} eigenvalues up to {measured.largest:.3g}, {measured.zeros} of them zero."
    return draw, f"{says} The band holds the number of those up to a value, within the errors of the random vectors."


def course(
    lower: Sequence[float],
    upper: Sequence[float],
    says: str,
    real: tuple[int, Sequence[float]] = (0, ()),
    trusted: int | None = None,
) -> Drawing:
    """Draw losses by step between two bounds, real ones from a step on, and until where they are trusted."""

    def draw(axes: Any) -> None:
        steps, (low, high) = range(len(lower)), (_shown(lower), _shown(upper))
        axes.plot(steps, high, color=SERIES[0], label="forecast" if lower is upper else "upper bound")
        if lower is not upper:
            axes.fill_between(steps, low, high, color=SERIES[0], alpha=0.4, label="between the bounds")
        if real[1]:
            followed = range(real[0], real[0] + len(real[1]))
            axes.plot(
                followed, _shown(real[1]), "o", color=SERIES[1], markersize=4, fillstyle="none", label="real steps"
            )
        if trusted is not None:
            axes.axvline(trusted, color=SERIES[2], linestyle=":", label="trusted until here")
        axes.set(yscale="log", xlabel="step", ylabel="loss")
        axes.set_xscale("symlog", linthresh=1, linscale=0.3)
        axes.set_xlim(0, max(len(lower), real[0] + len(real[1])))
        axes.legend()

    return draw, says


def _shown(losses: Sequence[float]) -> list[float]:
    return [loss if 0 < loss < math.inf else math.nan for loss in map(float, losses)]


def shares(of: Mapping[str, Mapping[str, float]]) -> Drawing:
    """Draw the shares of the layers that have the largest, in the trace or in eigenvalues."""
    layers = {name: max(each.get(name, 0.0) for each in of.values()) for each in of.values() for name in each}
    chosen = sorted(layers, key=lambda name: -layers[name])[:MOST]
    kept = [name for name in layers if name in chosen]

    def draw(axes: Any) -> None:
        height, place = 0.8 / len(of), np.arange(len(kept))
        for i, (what, found) in enumerate(of.items()):
            widths, at = [100 * found.get(name, 0.0) for name in kept], place + (i - (len(of) - 1) / 2) * height
            axes.barh(at, widths, height, color=SERIES[i], edgecolor=INK, hatch=(None, "///", "...")[i], label=what)
        names = [name or "(module)" for name in kept]
        axes.set_yticks(place, [n if len(n) <= LETTERS else f"...{n[3 - LETTERS :]}" for n in names])
        axes.invert_yaxis()
        axes.set(xlabel="share in per cent")
        axes.figure.legend(loc="outside upper left", ncols=len(of))

    says = f"Shares of {f'the {MOST} layers that have most' if len(layers) > MOST else 'the layers'}. The most"
    most = [f"of the {what} is in {max(f, key=lambda name: f[name]) or 'the module'}" for what, f in of.items()]
    return draw, f"{says} {', '.join(most)}."
