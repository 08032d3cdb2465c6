"""The lesson "Along the training": its numbers, and its findings by other ways."""

import numpy as np
import pytest
import torch

import gnlib
from tests.pages.pages import kept, parameters, rows


def of_networks_in_use(network):
    """Return the rows of the kept table along the training of a whole network."""
    whole = [row for row in kept("pruning-further") if (row["pruning"], row["columns"]) == ("none", "kept")]
    return [row for row in whole if row["network"] == network and row["statistics"] != "running"]


def values():
    along, w = of_networks_in_use("ResNet20"), 0.1
    omega = w * w - 1
    gauss = np.full((2, 2), w * w)
    return {
        "images": along[0]["published_images"],
        "fall": along[0]["smallest"] / along[-1]["smallest"],
        "units": [50, 100],
        "small": w,
        "residual": omega,
        "ends": list(np.linalg.eigvalsh(gauss + omega * np.array([[0, 1], [1, 0]]))),
        "gauss": np.linalg.eigvalsh(gauss)[-1],
    }


def test_one_network_rises_one_falls_and_one_doubles():
    for name in ("ResNet20", "FcNN", "ViT"):
        first, *_, last = of_networks_in_use(name)
        (found,) = rows("training", f"{name}:")
        changes = [last[column] / first[column] for column in ("largest", "smallest", "kappa")]
        assert found[-3:] == pytest.approx(changes, rel=0.01)
        assert changes[0] / changes[1] == pytest.approx(changes[2], rel=1e-3)
        kappa = {"ResNet20": (100, 150), "FcNN": (1.9, 2.2), "ViT": (1 / 100, 1 / 75)}[name]
        assert kappa[0] < changes[2] < kappa[1]
    assert rows("training", "ResNet20:")[0][-3] == pytest.approx(1, abs=0.05)
    first, second, *_, last = (row["kappa"] for row in of_networks_in_use("ResNet20"))
    assert second > 2 * last > 2 * first


def test_kappa_of_two_units_ends_at_the_stretch_of_the_target():
    s, path = parameters("training")["s"], rows("training", "step ")[:7]
    assert path[0] == [0, 1] and [path[-1][1], path[-2][1]] == pytest.approx([s, s], abs=2e-3)
    root = torch.tensor([s**0.5, 1.0], dtype=torch.float64).diag()
    net = torch.nn.Sequential(*(torch.nn.Linear(2, 2, bias=False) for _ in range(2))).double()
    for layer in net:
        layer.weight.data = root.clone()
    corners = 2**0.5 * torch.eye(2, dtype=torch.float64)
    assert float(gnlib.condition_number(net, corners)) == pytest.approx(s)


def test_unbalanced_layers_end_elsewhere():
    """With w^2 - v^2 = c and w v = q the sum of the squares is the root of c^2 + 4 q^2."""
    s, ends = parameters("training")["s"], {}
    for a in (1, 2):
        c = a**2 - a**-2
        both = np.sqrt(c**2 + 4 * np.array([s, 1.0]) ** 2)
        sums = np.add.outer(both + c, both - c) / 2
        ends[a] = sums.max() / sums.min()
    assert ends[1] == pytest.approx(s)
    assert rows("training", "the same product")[0][-1] == pytest.approx(ends[2], rel=0.01) and ends[2] < s / 2


def test_the_second_half_fades_in_wide_linear_networks_only():
    """Four outputs: where the gradient is zero, four hidden units leave nothing of the functional Hessian, two do."""
    generator = torch.Generator().manual_seed(0)
    x = gnlib.whiten(torch.randn(40, 8, generator=generator, dtype=torch.float64))
    y, left = torch.randn(40, 4, generator=generator, dtype=torch.float64), {}
    for width in (2, 4):
        w = 0.5 * torch.randn(12 * width, generator=generator, dtype=torch.float64)

        def outputs(w, width=width):
            V, W = w.split([8 * width, 4 * width])
            return x @ V.reshape(width, 8).T @ W.reshape(4, width).T

        def loss(w, outputs=outputs):
            return (outputs(w) - y).square().sum() / 80

        for _ in range(20_000):
            w = w - 0.1 * torch.func.grad(loss)(w)
        assert torch.func.grad(loss)(w).norm() < 1e-8
        J = torch.func.jacrev(outputs)(w).flatten(0, 1)
        left[width] = torch.linalg.eigvalsh(torch.func.jacrev(torch.func.grad(loss))(w) - J.T @ J / 40).abs().max()
    assert left[4] < 1e-6 < 0.1 < left[2]
