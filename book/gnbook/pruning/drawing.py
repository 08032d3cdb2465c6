"""Figures and tables of trainings in the set-up of the public code, kept ones and those of today."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

import numpy as np

from gnbook import figures
from gnbook.pruning.trainings import PRUNINGS, Row, Training, late_loss, most_pruned, path
from gnbook.tables import Table

LOOKS = dict(zip(PRUNINGS, (figures.COLORS[6], figures.COLORS[0], figures.COLORS[2], figures.COLORS[1]), strict=True))
NAMES = {"loss": "training loss", "kappa": "condition number κ"}


def draw(
    axis: figures.plt.Axes,
    found: Mapping[Training, Sequence[Row]],
    network: str,
    column: str,
    kinds: Iterable[str] = ("kept",),
) -> None:
    """Draw the trainings of a network, paler where less is pruned; by kept columns solid, by all dotted."""
    most = most_pruned(found, network).values()
    for training, rows in found.items():
        if training.network == network:
            alpha = 1 if training in most else 0.2 + 0.5 * training.fraction
            for kind in kinds if column == "kappa" else ("kept",):
                style = ("o-" if kind == "kept" else "o:") if column == "kappa" else "-"
                epochs, values = path(rows, column, kind)
                label = str(training) if kind == "kept" else None
                axis.plot(epochs, values, style, color=LOOKS[training.pruning], alpha=alpha, label=label)
    values = np.concatenate([[1.0], *(line.get_ydata() for line in axis.lines)][bool(axis.lines) :])
    axis.set(xlabel="epoch", ylabel=NAMES[column], yscale="log" if values.max() > 5 * values.min() else "linear")


def below(figure: figures.plt.Figure, axes: Iterable[figures.plt.Axes]) -> None:
    """Say once below the axes what is pruned."""
    shown = {label: line for axis in axes for line, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(shown.values(), shown, title="pruned", loc="outside lower center", ncols=2)


def side_by_side(found: Mapping[Training, Sequence[Row]], networks: Sequence[str], column: str) -> None:
    """Draw one column for several networks, a panel each."""
    figure, axes = figures.panels(len(networks), height=4.4)
    for axis, network in zip(axes, networks, strict=True):
        draw(axis, found, network, column)
        axis.set_title(network)
        if axis is not axes[0]:
            axis.set_ylabel("")
    below(figure, axes)


def summary(found: Mapping[Training, Sequence[Row]], kinds: Sequence[str] = ("kept",)) -> Table:
    """Return what becomes of the networks of which most is pruned: losses, and condition numbers before and after."""
    rows = []
    for network in dict.fromkeys(training.network for training in found):
        of = {pruning: found[training] for pruning, training in most_pruned(found, network).items()}
        losses = {pruning: path(some, "loss") for pruning, some in of.items()}
        last = max(epochs[-1] for epochs, _ in losses.values())
        since = (0.9 if last >= 100 else 0.75) * last
        ends = {pruning: f"{values[-1]:.3g}" for pruning, (_, values) in losses.items()}
        late = {pruning: f"{late_loss(some):.3g}" for pruning, some in of.items()}
        measures = {f"loss, epoch {last}": ends, f"loss, mean from epoch {since:.0f} on": late}
        for kind, at in product(kinds, (0, -1)):
            kappas = {pruning: path(some, "kappa", kind) for pruning, some in of.items()}
            kappas = {pruning: found for pruning, found in kappas.items() if found[0]}
            epoch = next((epochs[at] for epochs, _ in kappas.values()), 0)
            what = f"κ, epoch {epoch}" + (", all columns" if kind == "all" else "")
            measures[what] = {pruning: f"{values[at]:.1e}" for pruning, (_, values) in kappas.items()}
            ranks = {pruning: round(path(of[pruning], "rank", kind)[1][at]) for pruning in kappas}
            if len({*ranks.values()}) > 1:
                measures[what.replace("κ", "rank")] = ranks
        rows += [[network, what, values] for what, values in measures.items()]
    there = [pruning for pruning in PRUNINGS if any(training.pruning == pruning for training in found)]
    cells = [[network, what, *(values.get(pruning) for pruning in there)] for network, what, values in rows]
    heads = {"nothing" if pruning == "none" else pruning: ">" for pruning in there}
    most = max((training.fraction for training in found), default=0)
    caption = f"{most:.0%} pruned, of what the head names; κ by the columns that are kept"
    return Table({"": "<", "of": "<"} | heads, cells, caption)
