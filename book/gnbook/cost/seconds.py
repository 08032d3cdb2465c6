"""Seconds: how they are taken, and how they are drawn."""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TypeVar

import numpy as np
import torch
from matplotlib.axes import Axes

Result = TypeVar("Result")


def timed(run: Callable[[], Result], device: torch.device) -> tuple[float, Result]:
    """Return the seconds of the fastest of up to three runs, of one where it takes a second, and the result."""
    times: list[float] = []
    while not times or (len(times) < 3 and sum(times) < 1):
        start = perf_counter()
        result = run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # it is given work ahead of time
        times.append(perf_counter() - start)
    return min(times), result


def curve(axis: Axes, sizes: Sequence[float], seconds: Sequence[float], label: str, look: tuple[str, str]) -> None:
    """Draw the times that were taken; those that were not are NaN, and left out."""
    there, (color, style) = np.isfinite(seconds), look
    axis.plot(np.array(sizes)[there], np.array(seconds)[there], style, color=color, label=label)


def label_seconds(axis: Axes) -> None:
    """Label a logarithmic axis by numbers, at least three where it spans a decade."""
    low, high = axis.get_ylim()
    ticks = [tick for power in range(-4, 4) for tick in (10.0**power, 3 * 10.0**power) if low <= tick <= high]
    axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()


def finish(axis: Axes, sizes: Sequence[int], label: str) -> None:
    """Give an axis of seconds against sizes its scales, its labels and the legend of its figure."""
    axis.set(xscale="log", yscale="log", xlabel=label, ylabel="seconds")
    axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
    label_seconds(axis)
    axis.figure.legend(loc="outside upper left", ncols=2)
