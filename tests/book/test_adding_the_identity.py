"""The numbers in the text of "Adding the identity" are those of its own table and of its Gaussian matrix."""

import pytest
import torch

from tests.book.pages import prose, table


@pytest.fixture(scope="module")
def text():
    return prose("notebooks/adding-the-identity")


@pytest.fixture(scope="module")
def singular_values():
    """Of the matrix of the first figure, for 2,001 weights of the skip."""
    matrix = 0.3 * torch.randn(15, 15, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = torch.linspace(0, 1, 2001, dtype=torch.float64)
    return weights, torch.linalg.svdvals(matrix + weights[:, None, None] * torch.eye(15, dtype=torch.float64))


def test_the_two_lowest_curves_do_not_cross(text, singular_values):
    weights, values = singular_values
    gap, at = (values[:, -2] - values[:, -1]).min(0)
    assert f"seem to cross near $\\rho = {weights[at]:.1f}$: they come within {gap:.3f} of each other" in text
    assert gap > 0


def test_two_of_the_fifteen_are_convex(text, singular_values):
    counts = dict(line.rsplit(maxsplit=1) for line in table("adding-the-identity", "of the 15"))
    assert "here the second is too" in text and "Here two of the fifteen are." in text
    convex = (singular_values[1].diff(dim=0).diff(dim=0) > -1e-9).all(0)
    assert convex.nonzero().flatten().tolist() == [0, 1] and counts["are not convex"] == "13"


def test_the_price_of_small_weights(text):
    assert f"At 100 units and $cn = 1/2$ a weight may be {0.5 / 100:.3f}, where Kaiming draws about 0.1." in text
    kaiming = torch.nn.init.kaiming_normal_(torch.empty(100, 100), nonlinearity="linear", generator=torch.Generator())
    assert 0.095 < kaiming.std() < 0.105


def test_branches_that_start_at_zero(text):
    rows = [line.replace(",", "").split() for line in table("adding-the-identity", "four blocks that start at zero")]
    found = {(name, int(step)): [float(word) for word in words] for name, step, *words in rows}
    assert all(norm == 0 and kappa == 1 for (_, step), (_, norm, kappa) in found.items() if step == 0)
    loss, norm, _ = found["SGD", 1000]
    assert "the loss is 10,000 times smaller, and $s_1$ is still below one half" in text
    assert 8e3 < found["SGD", 0][0] / loss < 2e4 and norm < 1 / 2
    assert "$s_1$ is below one for the first hundred steps and above it after 1,000" in text
    assert found["Adam", 100][1] < 1 < found["Adam", 1000][1] and found["Adam", 1000][2] < 3
