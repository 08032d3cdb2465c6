"""The numbers in the text of the lesson "L layers: the law of depth", and its findings."""

import re
from functools import cache

import numpy as np
import pytest
import scipy.optimize
import torch

import gnlib
from gnlib.laws import deep_linear
from gnlib.laws import kappa as of_many
from tests.pages.laboratory.test_deep_linear import means
from tests.pages.lesson import in_sight
from tests.pages.pages import ROOT, kept, parameters, rows

PAGE = "deep-linear"
TEXT = (ROOT / f"notebooks/{PAGE}.md").read_text()


@cache
def functions():
    """Return the functions that the page defines."""
    names = {"np": np, "rng": np.random.default_rng(0)} | parameters(PAGE)
    for cell in in_sight(PAGE):
        for found in re.findall(r"^def .*?(?=^\S|\Z)", cell.source, re.M | re.S):
            exec(found, names)
    return names


def called(name, *given):
    with np.errstate(all="ignore"):
        return functions()[name](*given)


def stretch(values):
    return values[-1] / values[0]


def two_layers(factor):
    """The first dot of the first figure, and the same with an output layer of another size."""
    d, rng = parameters(PAGE)["d"], np.random.default_rng(parameters(PAGE)["seed"])
    above, below = rng.standard_normal((1, d)) / d**0.5, rng.standard_normal((d, d)) / d**0.5
    return stretch(np.linalg.eigvalsh(below.T @ below + factor**2 * np.sum(above**2) * np.eye(d)))


@cache
def values():
    return {"plain": two_layers(1), "halved": two_layers(1 / 2)}


def test_the_matrix_is_the_one_of_the_library():
    """From the output down, as by the derivative of the product of the layers."""
    sizes = [12, 20, 20, 20, 1]
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(sizes[i + 1], sizes[i], generator=generator).double() for i in range(4)]
    drawn = iter([layer.numpy() for layer in weights[::-1]])
    names = functions() | {"d": 12}
    source = next(cell.source for cell in in_sight(PAGE) if cell.source.startswith("def spectrum"))
    exec(source, names)
    by_page = names["spectrum"](4, 20, lambda *_: next(drawn))
    matrix = gnlib.reduced_gauss_newton(lambda a, b, c, e: e @ c @ b @ a, weights, torch.eye(12))
    assert by_page == pytest.approx(torch.linalg.eigvalsh(matrix).numpy(), rel=1e-9)


@pytest.mark.parametrize(("L", "c"), [(2, 1.0), (2, 0.25), (5, 0.5), (20, 0.1), (64, 0.25), (300, 0.001)])
def test_the_recursion_is_the_law_of_the_library(L, c):
    law = deep_linear(L, 1000, round(1000 * c), inputs=1000)
    ends = [called("path", L, c, side)[1][-1] for side in (-1, 1)]
    assert ends == pytest.approx([law.lower, law.upper], rel=1e-3)
    ((_, by_library),) = rows(PAGE, r"kappa by(?= recursion)")
    assert by_library == round(deep_linear(4, 400, 100, inputs=400).kappa, 2)


@pytest.mark.parametrize(("L", "side"), [(2, 1), (4, 1), (4, -1), (8, 1), (8, -1)])
def test_psi_of_the_path_moves_away_from_zero_up_to_the_edge(L, side):
    psi, zeta = called("path", L, 0.25, side)
    assert (side * np.diff(psi) > 0).all() and (side * np.diff(zeta) < 0).all()


def test_dots_lie_within_a_factor_of_their_lines():
    """The twenty dots of the figure, drawn in its order."""
    d, rng = parameters(PAGE)["d"], np.random.default_rng(parameters(PAGE)["seed"])
    names = functions() | {"rng": rng}
    for name in ("gaussian", "spectrum"):
        source = next(cell.source for cell in in_sight(PAGE) if f"def {name}" in cell.source)
        exec(re.search(rf"^def {name}.*?(?=^\S|\Z)", source, re.M | re.S)[0], names)
    misses = {}
    for ratio in parameters(PAGE)["ratios"]:
        for L in parameters(PAGE)["depths"]:
            law = deep_linear(L, ratio * d, d, inputs=ratio * d).kappa
            misses[ratio, L] = abs(np.log(law / stretch(names["spectrum"](L, ratio * d))))
    assert np.log(1.8) < max(misses.values()) < np.log(2.2)
    assert {key for key, miss in misses.items() if miss > np.log(1.4)} <= {(1, 32), (1, 16), (2, 32), (2, 16)}


def test_narrow_deep_networks_scatter_and_lie_below_the_law():
    """As narrow as the data: at 16 and 32 layers, in the geometric mean of a hundred networks."""
    d, names = 80, functions() | {"rng": np.random.default_rng(1), "d": 80}
    for name in ("gaussian", "spectrum"):
        source = next(cell.source for cell in in_sight(PAGE) if f"def {name}" in cell.source)
        exec(re.search(rf"^def {name}.*?(?=^\S|\Z)", source, re.M | re.S)[0], names)
    for L in (16, 32):
        found = np.array([stretch(names["spectrum"](L, d)) for _ in range(100)])
        off = np.log(found / deep_linear(L, d, d, inputs=d).kappa)
        assert 0.75 < np.exp(off.mean()) < 0.95
        assert 0.8 < np.mean(abs(off) < np.log(3)) < 1


def test_t_alone_gives_kappa_up_to_a_factor_of_four():
    for ratio in parameters(PAGE)["ratios"]:
        for L in parameters(PAGE)["depths"]:
            law = deep_linear(L, 1000 * ratio, 1000, inputs=1000 * ratio).kappa
            assert 1 < of_many(L / ratio) / law < 4.5


def test_depth_is_a_crossover():
    times = [row[-1] for row in rows(PAGE, "t = ")]
    assert times == sorted(times) and times[0] < 1.2 and times[-1] == pytest.approx(4, abs=0.1)
    theta = scipy.optimize.brentq(lambda x: x * np.tanh(x) - 1, 1, 2, xtol=1e-14)  # of Laplace's limit
    assert f"{(np.cosh(theta) / theta) ** 2:.4f}\\, t^2" in TEXT
    assert of_many(1e-4) == pytest.approx(1 + 4 * (1e-4 / 3) ** 0.5, rel=1e-3)


def test_width_in_proportion_to_depth_freezes_kappa():
    (*_, (_, _, before, *_), (_, _, last, one, _, eighth)) = rows(PAGE, "L = ")
    assert [one, eighth] == pytest.approx([of_many(1), of_many(1 / 8)], rel=0.01)
    assert last / before == pytest.approx(16, rel=0.1)  # four times the depth


def test_the_law_is_right_at_the_size_of_the_paper():
    """Within a quarter at every width and depth of the kept table; the page prints four of them."""
    plain = {(m, L): kappa for (figure, m, L), kappa in means().items() if figure == "2a"}
    assert len(kept(PAGE)) > 120 and len(plain) > 30
    for (m, L), kappa in plain.items():
        assert 0.75 < kappa / deep_linear(L, m, 587, inputs=784, outputs=10).kappa < 1.25
    for m, L, measured, law in rows(PAGE, "m = "):
        assert measured == pytest.approx(plain[m, L], abs=0.06)
        assert measured == pytest.approx(law, rel=0.12)


def test_a_layer_leaves_psi_alone():
    """By the numbers of the page, and for a large layer on a spectrum of three eigenvalues, on both sides."""
    shown = rows(PAGE, "zeta from")
    assert [row[0] for row in shown] == [4, 6, -1]
    assert all(after == pytest.approx(before, rel=0.05) for _, _, before, after in shown)
    rng, c, X = np.random.default_rng(2), 1 / 2, np.repeat([0.5, 1.0, 4.0], 300)
    W = rng.standard_normal((round(len(X) / c), len(X))) * (c / len(X)) ** 0.5
    Y = np.linalg.eigvalsh(np.sqrt(np.outer(X, X)) * (W.T @ W))
    for zeta in (9.0, 40.0, -0.3, -5.0):
        psi = called("psi_at", zeta, X)
        assert called("psi_at", zeta * (1 + c * psi), Y) == pytest.approx(psi, rel=0.02)
