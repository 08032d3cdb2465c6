"""Figures with a slider."""

from base64 import b64decode

import numpy as np
import pytest
from bs4 import BeautifulSoup
from gnbook.moving import SCRIPT, Curve, Moving

T = np.arange(1.0, 4.0)
ALT = 'Curves that "fall" < 1.'
FRAMES = {str(rate): [Curve(T, 10.0**-rate * T, "one"), Curve(T, np.full(3, rate), "two", "--")] for rate in (1, 2, 5)}


def test_every_frame_is_in_the_page_and_a_picture_for_where_scripts_are_off():
    moving = Moving(FRAMES, "rate", ALT, xlabel="step", ylabel="loss", yscale="log", ylim=(1e-2, 1e3))
    bundle, again = moving._repr_mimebundle_(), moving._repr_mimebundle_()
    figure, html = bundle["application/vnd.plotly.v1+json"], bundle["text/html"]
    frames = {frame["name"]: frame["data"] for frame in figure["frames"]}
    assert [frames[rate][0]["y"] for rate in "125"] == [[0.1, 0.2, 0.3], [0.01, 0.02, 0.03], [1e-5, 2e-5, 3e-5]]
    steps = figure["layout"]["sliders"][0]["steps"]
    assert [(step["label"], step["args"][0]) for step in steps] == [("1", ["1"]), ("2", ["2"]), ("5", ["5"])]
    assert figure["layout"]["yaxis"]["range"] == pytest.approx([-2, 3])
    assert html == again["text/html"]
    page = BeautifulSoup(html, "html.parser")
    assert page.select_one("div.moving")["aria-label"] == page.select_one("img.still")["alt"] == ALT
    kind, picture = page.select_one("img.still")["src"].split(",")
    assert kind == "data:image/png;base64" and b64decode(picture).startswith(b"\x89PNG")
    assert [script["src"] for script in page.select("script[src]")] == [SCRIPT]
    assert len(html) < 100_000
