"""Figures with a slider."""

from base64 import b64decode

import numpy as np
import pytest
from bs4 import BeautifulSoup
from gnbook.moving import SCRIPT, Curve, Moving

T = np.arange(1.0, 4.0)
ALT = 'Curves that "fall" < 1.'
AXES = {"xlabel": "step", "ylabel": "loss", "yscale": "log", "ylim": (1e-2, 1e3)}


def falling():
    frames = {
        str(rate): [Curve(T, 10.0**-rate * T, "one"), Curve(T, np.full(3, rate), "two", "--")] for rate in (1, 2, 5)
    }
    return Moving(frames, "rate", ALT, **AXES)


def test_every_frame_is_in_the_page_with_its_numbers():
    bundle = falling()._repr_mimebundle_()
    figure = bundle["application/vnd.plotly.v1+json"]
    frames = {frame["name"]: frame["data"] for frame in figure["frames"]}
    assert [frames[name][0]["y"] for name in ("1", "2", "5")] == [
        [0.1, 0.2, 0.3],
        [0.01, 0.02, 0.03],
        [1e-5, 2e-5, 3e-5],
    ]
    assert [curve["name"] for curve in frames["5"]] == ["one", "two"]
    assert [curve["line"]["dash"] for curve in frames["5"]] == ["solid", "dash"]
    assert figure["data"] == frames["2"] and figure["layout"]["sliders"][0]["active"] == 1
    steps = figure["layout"]["sliders"][0]["steps"]
    assert [(step["label"], step["args"][0]) for step in steps] == [("1", ["1"]), ("2", ["2"]), ("5", ["5"])]
    assert figure["layout"]["xaxis"]["type"] == "linear" and figure["layout"]["yaxis"]["type"] == "log"
    assert figure["layout"]["yaxis"]["range"] == pytest.approx([-2, 3])


def test_the_page_has_a_picture_for_where_scripts_are_off_and_no_script_of_plotly_itself():
    html, again = (falling()._repr_mimebundle_()["text/html"] for _ in range(2))
    assert html == again
    page = BeautifulSoup(html, "html.parser")
    assert page.select_one("div.moving")["aria-label"] == page.select_one("img.still")["alt"] == ALT
    kind, picture = page.select_one("img.still")["src"].split(",")
    assert kind == "data:image/png;base64" and b64decode(picture).startswith(b"\x89PNG")
    assert [script["src"] for script in page.select("script[src]")] == [SCRIPT]
    assert len(html) < 100_000
