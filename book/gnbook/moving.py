"""Figures that move without a kernel: a slider through frames that were computed beforehand."""

import json
import sys
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from io import BytesIO
from itertools import cycle
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Real

from gnbook.figures import COLORS, panels

SCRIPT = "../_static/plotly.min.js"  # seen from a page of the site
HEIGHT = 430  # pixels
DASHES = {"-": "solid", "--": "dash", ":": "dot"}  # from styles of matplotlib to those of plotly

# The still picture goes when the moving one is there, wherever scripts run.
STYLE = (
    ".moving:has(.plot-container) .still {display: none} .moving .still {max-width: 100%} "
    ".moving:not(:has(.plot-container)) .plotly-graph-div {height: 0 !important}"
)


@dataclass(frozen=True)
class Curve:
    """A curve of a frame."""

    x: Real[np.ndarray, " points"]
    y: Real[np.ndarray, " points"]  # points that are not finite are left out
    label: str  # for the legend
    style: str = "-"  # "-", "--" or ":"
    color: str | None = None  # in CSS; without one the next of the palette


class Moving:
    """A figure with a slider: in the book and in notebooks it moves, elsewhere it shows three of its frames.

    Frames are by position of the slider, each with as many curves in the same order; `alt` describes the figure to
    readers who do not see it. Axes have `xlabel`, `ylabel`, and perhaps `xscale`, `yscale`, `xlim`, `ylim`, as in
    matplotlib.
    """

    def __init__(self, frames: Mapping[str, Sequence[Curve]], slider: str, alt: str, **axes: Any) -> None:
        self.frames, self.slider, self.alt, self.axes = dict(frames), slider, alt, axes

    def __repr__(self) -> str:
        """Return a description in words."""
        return f"A figure with a slider ({self.slider}: {', '.join(self.frames)}). {self.alt}"

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        """Return the figure as pages show it, and as Jupyter does by itself."""
        still = f'<img class="still" alt="{escape(self.alt)}" src="data:image/png;base64,{self._still()}">'
        try:
            figure = self._moving()
        except ImportError:  # plotly is not everywhere where chapters run
            return {"text/plain": repr(self), "text/html": still}
        # Colab shows each output in a frame of its own, from which nothing of this site is found.
        script = "cdn" if "google.colab" in sys.modules else SCRIPT
        name = "moving-" + sha256(figure.to_json().encode()).hexdigest()[:12]
        moving = figure.to_html(
            include_plotlyjs=script, full_html=False, auto_play=False, div_id=name, config={"displayModeBar": False}
        )
        html = f'<div class="moving" aria-label="{escape(self.alt)}"><style>{STYLE}</style>{moving}{still}</div>'
        return {
            "text/plain": repr(self),
            "text/html": html,
            "application/vnd.plotly.v1+json": json.loads(figure.to_json()),
        }

    def _still(self) -> str:
        """Return the first, the middle and the last frame as a picture."""
        names = list(self.frames)
        some = dict.fromkeys([names[0], names[len(names) // 2], names[-1]])
        figure, drawn = panels(len(some), height=3.2, sharey=True)
        for axis, name in zip(drawn, some, strict=True):
            for curve, color in zip(self.frames[name], cycle(COLORS), strict=False):
                axis.plot(curve.x, curve.y, curve.style, color=curve.color or color, label=curve.label)
            axis.set(title=name, **self.axes | {"xlabel": "", "ylabel": ""})
        figure.suptitle(self.slider)
        figure.supxlabel(self.axes["xlabel"])
        figure.supylabel(self.axes["ylabel"])
        drawn[0].legend(fontsize="x-small")
        file = BytesIO()
        figure.savefig(file, format="png", metadata={"Software": None})
        plt.close(figure)
        return b64encode(file.getvalue()).decode()

    def _moving(self) -> Any:
        """Return the figure of plotly."""
        from plotly import graph_objects as go

        def traces(curves: Sequence[Curve]) -> list[Any]:
            found = []
            for curve, color in zip(curves, cycle(COLORS), strict=False):
                line = {"dash": DASHES[curve.style], "color": curve.color or color}
                x, y = _plain(curve.x), _plain(curve.y)
                found.append(go.Scatter(x=x, y=y, name=curve.label, mode="lines", line=line))
            return found

        quick = {"mode": "immediate", "frame": {"duration": 0, "redraw": False}, "transition": {"duration": 0}}
        steps = [{"label": name, "method": "animate", "args": [[name], quick]} for name in self.frames]
        middle = len(self.frames) // 2
        slider = {"active": middle, "currentvalue": {"prefix": f"{self.slider}: "}, "steps": steps, "pad": {"t": 50}}
        slider["len"] = 0.92  # the last label is centred at the end and would be cut off
        return go.Figure(
            data=traces(list(self.frames.values())[middle]),
            frames=[go.Frame(name=name, data=traces(curves)) for name, curves in self.frames.items()],
            layout={
                "template": "plotly_white",
                "height": HEIGHT,
                "margin": {"l": 60, "r": 20, "t": 10, "b": 10},
                "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
                "xaxis": self._axis("x"),
                "yaxis": self._axis("y"),
                "sliders": [slider],
            },
        )

    def _axis(self, which: str) -> dict[str, object]:
        """Return an axis of plotly from the options of matplotlib, whose limits plotly wants as exponents."""
        scale, limits = self.axes.get(f"{which}scale", "linear"), self.axes.get(f"{which}lim")
        log = scale == "log"
        axis: dict[str, object] = {"title": {"text": self.axes[f"{which}label"]}, "type": scale}
        if limits is not None:
            limits = [float(np.log10(limit)) if log else limit for limit in limits]
            axis["range"] = limits
        if log:
            decades = 1 if limits is None else limits[1] - limits[0]
            axis |= {"exponentformat": "power", "dtick": max(1, round(decades / 8))}  # eight labels at most, or so
        return axis


def _plain(values: Real[np.ndarray, " points"]) -> list[float | None]:
    """Return numbers that fit into a page: five digits, nothing where they are not finite."""
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in np.asarray(values, dtype=float)]
