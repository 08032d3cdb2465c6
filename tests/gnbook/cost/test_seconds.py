"""Seconds are those of the fastest run, and an axis of them can be read."""

from itertools import count
from time import sleep

import numpy as np
import torch
from gnbook import figures
from gnbook.cost.seconds import curve, finish, timed


def test_the_fastest_run_counts():
    waits = iter((0.05, 0.01, 0.05))
    seconds, _ = timed(lambda: sleep(next(waits)), torch.device("cpu"))
    assert 0.01 <= seconds < 0.05


def test_what_takes_a_second_is_run_once():
    runs = count(1)
    seconds, last = timed(lambda: (sleep(1.01), next(runs))[1], torch.device("cpu"))
    assert seconds >= 1 and last == 1


def test_times_that_were_not_taken_are_left_out_and_the_axis_has_numbers():
    figure, (axis,) = figures.panels()
    curve(axis, [5, 20, 80], [0.02, np.nan, 2.0], "ours", ("C0", "o-"))
    finish(axis, [5, 20, 80], "images")
    assert axis.lines[0].get_xdata().tolist() == [5, 80]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["0.03", "0.1", "0.3", "1"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ours"]
