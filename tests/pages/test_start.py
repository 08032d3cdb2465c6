"""The lesson "How long does the start hold?": its numbers, and its findings by other ways."""

import numpy as np
import pytest
import torch

import gnlib
from tests.pages.lesson import in_sight
from tests.pages.pages import parameters, rows


def defined():
    """Return what the cells in sight that only define bind."""
    names = {}
    for cell in in_sight("start"):
        if cell.source.startswith(("def ", "import numpy")) or "parameters" in cell.metadata.get("tags", ()):
            exec(cell.source, names)
    names["tanh"] = np.tanh, lambda z: 1 - np.tanh(z) ** 2
    return names


def values():
    p = 1e-3
    _, middle, wide = parameters("start")["widths"]
    found = {"middle": middle, "wide": wide, "grown": rows("start", "step 20")[0][0]}
    return found | {"double": -2 / np.pi, "unsure": 1 / (4 * p * (1 - p)) ** 2 - 1}


def test_the_kernel_by_hand_is_that_of_automatic_differentiation():
    lesson = defined()
    rng = np.random.default_rng(3)
    for (phi, slope), function in ((lesson["ReLU"], torch.relu), (lesson["tanh"], torch.tanh)):
        V, w = rng.standard_normal((7, lesson["x"].shape[1])), rng.standard_normal(7)
        net = torch.nn.Module()
        net.V, net.w = (torch.nn.Parameter(torch.tensor(weights)) for weights in (V, w))
        net.forward = lambda x, net=net, function=function: function(x @ net.V.T) @ net.w[:, None] / 7**0.5
        found = gnlib.GaussNewton(net, torch.tensor(lesson["x"])).tangent_kernel().numpy()
        assert lesson["kernel"](V, w, phi, slope) == pytest.approx(found, rel=1e-10)


def test_where_relu_and_tanh_part():
    """At the widths of the page both fall about like 1 / m; at several thousand units tanh has half of the ReLU's."""
    relu, tanh = ([change for _, change, _ in rows("start", f"{name}, width")] for name in ("ReLU", "tanh"))
    for found in (relu, tanh):
        assert 6 < found[1] / found[2] < 12  # eight times the width
    assert all(b < a < 1.7 * b for a, b in zip(relu, tanh, strict=True))
    lesson = defined()
    lesson["x"] = lesson["x"] @ np.linalg.qr(lesson["x"].T)[0]  # normal weights do not know how the images are turned
    changes = {}
    for name in ("ReLU", "tanh"):
        runs = [lesson["train"](8192, *lesson[name], seed)[2:] for seed in range(4)]
        changes[name] = np.mean([np.linalg.norm(after - K) / np.linalg.norm(K) for K, after in runs])
    assert changes["ReLU"] > 2 * changes["tanh"]


def test_a_relu_drifts_by_the_gap_over_pi_and_tanh_does_not():
    (relu,), (tanh,) = (rows("start", f"{name} (?=-)") for name in ("ReLU", "tanh"))
    gap = parameters("start")["gap"]
    assert relu[-1] == pytest.approx(-gap / np.pi, abs=0.03) and relu == sorted(relu, reverse=True)
    assert abs(tanh[-1]) < 0.03 and rows("start", "law for ReLU")[0][0] == round(-gap / np.pi, 2)
    lesson = defined() | {"gap": 2.0}
    exec(next(cell.source for cell in in_sight("start") if "def drift" in cell.source), lesson)
    assert lesson["drift"](40_000, *lesson["ReLU"], draws=20).mean() == pytest.approx(values()["double"], abs=0.1)


def test_single_networks_do_as_their_mean():
    """Times the root of the width: the spread shrinks, and single networks go to zero with tanh, not with ReLUs."""
    lesson, changes = defined() | {"gap": 1.0}, {}
    exec(next(cell.source for cell in in_sight("start") if "def drift" in cell.source), lesson)
    for name in ("ReLU", "tanh"):
        changes[name] = [lesson["drift"](m, *lesson[name]) for m in (400, 6400)]
        narrow, wide = (each.std() for each in changes[name])
        assert wide < narrow / 2
    assert np.abs(changes["tanh"][1]).mean() < 0.04 and (changes["ReLU"][1] < 0).all()
