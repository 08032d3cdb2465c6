"""The numbers in the text of "The other half of the Hessian" that nothing else holds."""

import numpy as np
import pytest
import torch

from tests.pages.pages import prose, table

PAGE = "functional-hessian"


@pytest.fixture(scope="module")
def text():
    return prose(f"notebooks/{PAGE}")


def test_at_a_small_start_the_gradient_lies_along_the_negative_eigenvector(text):
    w, v, z = 0.1, 0.1, 1.0
    omega = w * v - z
    first = np.array([[v * v, w * v], [w * v, w * w]])
    (low, high), vectors = np.linalg.eigh(first + omega * np.array([[0, 1], [1, 0]]))
    assert f"v = 0.1$ and $z = 1$, so $\\omega = {omega:.2f}$, those of" in text
    assert f"${high:.2f}$ and ${low:.2f}$, and $G$ has ${np.linalg.eigvalsh(first)[1]:.2f}$." in text
    gradient = omega * np.array([v, w])
    assert f"eigenvector of ${low:.2f}$" in text
    assert abs(vectors[:, 0] @ gradient) == pytest.approx(np.linalg.norm(gradient))


def test_from_when_on_white_images_have_the_pace_of_gauss_newton(text):
    first = next(line.split() for line in table(PAGE, "which eigenvalue is at work") if line.startswith("white"))
    assert first[1:4] == ["300", "to", "1,000"] and float(first[6]) == 1
    assert "after some 300 steps it" in text
    at = {int(line.split()[0]): line.split() for line in table(PAGE, "images white")}
    assert "there within 1,000 steps" in text and at[300][5] == "-" and at[1000][5] != "-"


def test_how_many_eigenvalues_are_negative(text):
    _, top, least, _, negative = next(line.split() for line in table(PAGE, "eigenvalues; 920") if line[:2] == "H ")
    assert f"the start {negative} of the 920 of $H$" in text
    assert 0.3 < -float(least) / float(top) < 1 / 3


@pytest.mark.parametrize("m", range(1, 6))
def test_rank_of_gauss_newton_by_autograd(text, m):
    k, r = 3, 5
    draw = torch.Generator().manual_seed(m)
    w, v, x = (torch.randn(*shape, generator=draw, dtype=torch.float64) for shape in ((k, m), (m, r), (2 * r, r)))
    parts = torch.func.jacrev(lambda *net: x @ (net[0] @ net[1]).T, (0, 1))(w, v)
    jacobian = torch.cat([part.flatten(2) for part in parts], 2)
    assert torch.linalg.matrix_rank(jacobian.flatten(0, 1)) == (k * r if m >= min(k, r) else m * (k + r - m))
