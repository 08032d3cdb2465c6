"""What is drawn of trainings: a colour for what is pruned, paler for less of it."""

import pytest
from gnbook import figures
from gnbook.pruning import drawing
from gnbook.pruning.trainings import late_loss, trainings


def training(pruning, fraction, losses, kappas):
    about = {"network": "ViT", "pruning": pruning, "fraction": fraction}
    rows = [about | {"epoch": 10 * i, "loss": loss} for i, loss in enumerate(losses)]
    for columns, factor in (("kept", 1), ("all", 10)):
        at = [
            {"epoch": epoch, "kappa": factor * kappa, "rank": 5} for epoch, kappa in zip((0, 100), kappas, strict=True)
        ]
        rows += [about | {"statistics": "none", "columns": columns} | row for row in at]
    return rows


FOUND = trainings(
    training("none", 0.0, [2.0] * 9 + [1.0, 3.0], (7.0, 8.0))
    + training("weights", 0.4, [2.0] * 11, (1.0, 1.0))
    + training("weights", 0.8, [0.1] * 11, (50.0, 60.0))
)


@pytest.fixture(autouse=True)
def closed():
    yield
    figures.plt.close("all")


def test_late_is_the_last_tenth_of_a_long_training_and_the_last_quarter_of_a_short_one():
    rows = [{"epoch": epoch, "loss": epoch + 1.0} for epoch in range(0, 101, 5)]
    assert late_loss(rows) == pytest.approx(96) and late_loss(rows[:9]) == pytest.approx(36)  # 90 to 100, 30 to 40


def test_a_line_for_each_training_and_each_kind_of_columns():
    _, (axis, other) = figures.panels(2)
    drawing.draw(axis, FOUND, "ViT", "loss")
    assert [line.get_alpha() for line in axis.lines] == pytest.approx([1, 0.4, 1])
    assert [line.get_color() for line in axis.lines] == [drawing.LOOKS[of] for of in ("none", "weights", "weights")]
    assert axis.get_yscale() == "log" and axis.get_ylabel() == "training loss"
    drawing.draw(other, FOUND, "ViT", "kappa", ("kept", "all"))
    assert [line.get_linestyle() for line in other.lines] == ["-", ":"] * 3
    assert [line.get_ydata()[0] for line in other.lines] == pytest.approx([7, 70, 1, 10, 50, 500])
    assert len(other.get_legend_handles_labels()[1]) == 3  # said once
    drawing.draw(other, FOUND, "another", "loss")  # without a line


def test_panels_share_one_legend():
    drawing.side_by_side(FOUND, ["ViT", "ViT"], "kappa")
    figure = figures.plt.gcf()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "nothing", "40 % of the weights", "80 % of the weights",
    ]  # fmt: skip
    assert [axis.get_ylabel() for axis in figure.axes] == ["condition number κ", ""]


def test_the_summary_is_of_what_is_pruned_most():
    found = drawing.summary(FOUND, ("kept", "all"))
    assert found.head == ("", "of", "nothing", "weights") and found.caption.startswith("80% pruned")
    assert found.rows == [
        ("ViT", "loss, epoch 100", "3", "0.1"),
        ("ViT", "loss, mean from epoch 90 on", "2", "0.1"),
        ("ViT", "κ, epoch 0", "7.0e+00", "5.0e+01"),
        ("ViT", "κ, epoch 100", "8.0e+00", "6.0e+01"),
        ("ViT", "κ, epoch 0, all columns", "7.0e+01", "5.0e+02"),
        ("ViT", "κ, epoch 100, all columns", "8.0e+01", "6.0e+02"),
    ]


def test_a_rank_is_told_where_it_differs():
    fewer = [
        row | {"rank": 4} if "rank" in row and row["pruning"] == "weights" else row
        for rows in FOUND.values()
        for row in rows
    ]
    names = [row[1] for row in drawing.summary(trainings(fewer)).rows]
    assert names[-4:] == ["κ, epoch 0", "rank, epoch 0", "κ, epoch 100", "rank, epoch 100"]
