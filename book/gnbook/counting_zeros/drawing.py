"""Figures and tables of the page on zeros, which its further experiments show at another size."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float, Real
from torch import Tensor

from gnbook import figures
from gnbook.counting_zeros.rules import EPSILON
from gnbook.moving import Curve
from gnbook.tables import Table

Rows = Sequence[Mapping[str, object]]

WAYS = {
    "singular values": ("singular values of J", "black", "-"),
    "float64": ("J Jᵀ in float64", figures.COLORS[0], "--"),
    "float32": ("J Jᵀ in float32", figures.COLORS[1], ":"),
}


def when(epoch: int) -> str:
    """Say when that was."""
    return f"after {epoch} epochs" if epoch else "before training"


def short(number: float) -> str:
    """Return two digits and a power of ten, such as `3.2e10`."""
    return f"{number:.1e}".replace("e+0", "e").replace("e+", "e")


def counted(values: Float[Tensor, " q"], threshold: float, label: str = "") -> tuple[Curve, float]:
    """Return the curve of the eigenvalues above a threshold, over the largest, and their condition number."""
    shares = (values / values[0]).cpu().numpy()
    rank = int((shares > threshold).sum())
    some = np.unique(np.linspace(1, rank, 100).round().astype(int))
    return Curve(some, shares[some - 1], label), 1 / shares[rank - 1]


def draw_spectra(rows: Rows, rules: Rows) -> None:
    """Draw the eigenvalues at each epoch, computed in three ways, and the last that counts by the threshold of each."""
    epochs = sorted({row["epoch"] for row in rows})
    figure, axes = figures.panels(len(epochs), height=5.2, sharey=True)
    for axis, epoch in zip(axes, epochs, strict=True):
        here = [row for row in rows if row["epoch"] == epoch]
        stars = {row["rule"]: row for row in rules if row["epoch"] == epoch}
        for name, (label, color, line) in WAYS.items():
            ranks, values = np.array([(row["rank"], row[name]) for row in here if row[name] > 1e-36]).T
            axis.plot(ranks, values, line, color=color, label=label)
            star = stars[f"{name}, relative"]
            axis.plot(star["rank"], 1 / star["kappa"], "*", color=color, markersize=14)
        axis.plot([], [], "k*", markersize=9, label="last by its relative threshold")
        axis.axvline(here[0]["directions"], color="0.4", linewidth=1, linestyle="-.", label="upper bound of the rank")
        axis.set(xlabel="eigenvalue index", yscale="log", title=when(epoch))
    axes[0].set_ylabel("eigenvalue / largest")
    axes[-1].secondary_yaxis("right", functions=(_inverse, _inverse)).set_ylabel("condition number")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)


def draw_cliff(axis: plt.Axes, spectra: Mapping[str, Float[Tensor, " q"]], rules: Rows) -> None:
    """Draw the eigenvalues around the last that counts, and where the rules stop; the first rule is the right one."""
    edge, size = rules[0]["rank"], len(spectra["float64"])
    ranks = np.arange(max(edge - 39, 1), min(edge + 21, size) + 1)
    for name, (label, color, line) in WAYS.items():
        values = (spectra[name] / spectra[name][0])[ranks - 1].cpu().numpy()
        axis.plot(ranks, np.where(values > 0, values, np.nan), line, color=color, marker=".", label=label)
    inside = {row["rank"]: 1 / row["kappa"] for row in reversed(rules) if row["rank"] in ranks}
    for rank, height in inside.items():
        mark, filled = ("k*", "full") if rank == edge else ("ko", "none")
        axis.plot(rank, height, mark, fillstyle=filled, markersize=13)
        words = ", right" if rank == edge else ", two rules" if [row["rank"] for row in rules].count(rank) > 1 else ""
        place = dict(xytext=(-11, -2), textcoords="offset points", ha="right", va="top")
        axis.annotate(f"κ = {short(1 / height)}{words}", (rank, height), **place)
    axis.axvline(rules[0]["directions"], color="0.4", linewidth=1, linestyle="-.", label="upper bound of the rank")
    axis.set(xlabel="eigenvalue index", ylabel="eigenvalue / largest", yscale="log", ylim=(1e-19, 1e-5))
    axis.figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=2)


def draw_widths(axis: plt.Axes, rows: Rows, size: int) -> None:
    """Draw condition numbers against the width by the rule of each precision, of matrices of a size."""
    for epoch, color in zip(sorted({row["epoch"] for row in rows}), figures.COLORS, strict=False):
        here = [row for row in rows if row["epoch"] == epoch]
        draw_networks(axis, here, "kappa_float64", when(epoch), color)
        singular = [(row["width"], row["kappa_float64"]) for row in here if row["rank_float64"] < size]
        axis.plot(*np.reshape(singular, (-1, 2)).T, "o", color=color, markerfacecolor="white")
        draw_networks(axis, here, "kappa_float32", None if epoch else "float32 rule, at all epochs", "black", "s:")
    axis.plot([], [], "o", color="0.4", markerfacecolor="white", label="singular: the rule decides")
    axis.set(xlabel="ReLUs in the hidden layer", ylabel="condition number", xscale="log", yscale="log")
    axis.minorticks_off()
    units = sorted({row["width"] for row in rows})
    axis.set_xticks(units, units)
    axis.figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=2)


def draw_networks(axis: plt.Axes, rows: Rows, column: str, label: str | None, color: str, style: str = "o-") -> None:
    """Draw a column against the width: a mark for each network, and a line through the medians over networks."""
    units, values = figures.by_mark(rows, "width", column)
    axis.plot(units, [np.median(networks) for networks in values], style[1:], color=color, label=label)
    axis.plot([row["width"] for row in rows], [row[column] for row in rows], style[0], color=color)


def rule_table(rules: Rows, size: int) -> Table:
    """Return rank, condition number and gap by each rule, before training and after it; no gap where all count."""
    columns, by_rule, free = {"rule": "<"}, {}, []
    for epoch in sorted({row["epoch"] for row in rules}):
        here = [row for row in rules if row["epoch"] == epoch]
        columns |= {f"rank, epoch {epoch}": "d", f"κ, epoch {epoch}": ".1e", f"gap, epoch {epoch}": ".1e"}
        free.append(f"{here[0]['directions']} at epoch {epoch}")
        for row in here:
            name, threshold = row["rule"], row["rule"].split()[-1]
            if threshold != "relative":
                name = f"absolute {threshold}, " + ("J Jᵀ" if "not over n" in name else "J Jᵀ / n")
            gap = row["gap"] if row["rank"] < size else None
            by_rule.setdefault(name, [name]).extend([row["rank"], row["kappa"], gap])
    caption = f"seven rules, {size} eigenvalues; upper bound of the rank: {', '.join(free)}"
    return Table(columns, by_rule.values(), caption)


def width_table(rows: Rows, size: int) -> Table:
    """Return condition number and rank before and after training, by the rule of each precision."""
    first, last = (epoch(row["epoch"] for row in rows) for epoch in (min, max))
    columns, lines = {"m": "d", f"loss, epoch {last}": ".4f", "rule": "<"}, []
    for epoch in (first, last):
        columns |= {f"κ, epoch {epoch}": ".1e", f"rank, epoch {epoch}": "d"}
    for rule in EPSILON:
        for m in sorted({row["width"] for row in rows}):
            path = {row["epoch"]: row for row in rows if row["width"] == m}
            found = [path[epoch][f"{what}_{rule}"] for epoch in (first, last) for what in ("kappa", "rank")]
            lines.append([m, path[last]["loss"], rule, *found])
    caps = ", ".join(f"{1 / (size * eps):.1e} ({rule})" for rule, eps in EPSILON.items())
    return Table(columns, lines, f"{size} eigenvalues; a threshold of {size} eps caps κ at {caps}")


def spread_table(rows: Rows) -> Table:
    """Return the least and the largest of the networks of each width, by the rule of double precision."""
    first, last = (epoch(row["epoch"] for row in rows) for epoch in (min, max))
    columns = {f"loss, epoch {last}": ("loss", last, ".4f")}
    for epoch in (first, last):
        columns |= {f"κ, epoch {epoch}": ("kappa_float64", epoch, ".1e")}
        columns |= {f"rank, epoch {epoch}": ("rank_float64", epoch, "d")}
    lines = []
    for m in sorted({row["width"] for row in rows}):
        path = [row for row in rows if row["width"] == m]
        of = [
            ([row[column] for row in path if row["epoch"] == epoch], form) for column, epoch, form in columns.values()
        ]
        cells = [_ends(values, form) for values, form in of]
        lines.append([m, len({row["seed"] for row in path}), *cells])
    heads = {"m": "d", "networks": "d"} | dict.fromkeys(columns, "")
    return Table(heads, lines, "float64 rule, the least and the largest of the networks of each width")


def _ends(values: Sequence[float], form: str) -> str:
    least, largest = format(min(values), form), format(max(values), form)
    return least if least == largest else f"{least} to {largest}"


def _inverse(values: Real[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    return 1 / np.maximum(values, 1e-99)
