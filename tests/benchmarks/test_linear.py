"""Linear networks: Kronecker sums that are never formed, against the matrix and all its eigenvalues."""

import pytest
import torch

from gnlib import SecondMoment, condition_number, linear_gauss_newton, linear_weights, load
from tests.benchmarks.memory import with_peak_memory
from tests.benchmarks.race import DEVICES, assert_same_ends, race, sizes
from tests.oracles import orthogonal

TARGET = {2: 100, 5: 25, 10: 25}  # by depth
ON_DEVICES = pytest.mark.parametrize("device", DEVICES)


def moment(data, d):
    """White or graded data of full rank, or the bundled images of MNIST, of rank 587 at full resolution."""
    if data == "MNIST":
        return SecondMoment.from_data(load("mnist", stride={784: 1, 196: 2, 49: 4}[d])[0])
    eigenvalues = torch.ones(d) if data == "white" else torch.logspace(0, -6, d, dtype=torch.float64)
    return SecondMoment(orthogonal(d, d, seed=0), eigenvalues.double())


def network(data, d, k, m, depth, device="cpu"):
    weights = linear_weights([d] + [m] * (depth - 1) + [k], generator=torch.Generator().manual_seed(0))
    return [w.to(device) for w in weights], SecondMoment(*(t.to(device) for t in moment(data, d)))


def ours(weights, moment):
    return condition_number(linear_gauss_newton(weights, moment))


def dense(weights, moment):
    return torch.linalg.eigvalsh(linear_gauss_newton(weights, moment).dense())


@ON_DEVICES
@pytest.mark.parametrize("data", ["white", "graded", "MNIST"])
@pytest.mark.parametrize(
    ("d", "k", "m", "depth"),
    sizes([(49, 10, 80, 2), (49, 10, 80, 5)], [(784, 10, 1000, 2), (784, 10, 1000, 5), (784, 10, 1000, 10)]),
)
def test_depth_and_data(benchmark, data, d, k, m, depth, device):
    arguments = network(data, d, k, m, depth, device)
    found, values = race(
        benchmark,
        lambda: ours(*arguments),
        case=f"linear, {data}, d={d}, k={k}, m={m}, L={depth}",
        alternatives=[("dense + eigvalsh", lambda: dense(*arguments), 1, TARGET[depth])],
        device=device,
    )
    assert_same_ends(found, values)


@ON_DEVICES
@pytest.mark.parametrize(("d", "k", "m", "depth"), sizes([(60, 8, 70, 5)], [(3072, 10, 3100, 5)]))
def test_wide(benchmark, d, k, m, depth, device):
    arguments, half = (network("white", d, outputs, m, depth, device) for outputs in (k, k // 2))
    memory = with_peak_memory(ours, network, "white", d, k, m, depth)[1] if device == "cpu" else None
    _, values = race(
        benchmark,
        lambda: ours(*arguments),
        case=f"linear, white, d={d}, k={k}, m={m}, L={depth}",
        alternatives=[(f"dense + eigvalsh at k={k // 2}, times 8", lambda: dense(*half), 8, 100)],
        device=device,
        memory=memory,
        memory_target=4,
    )
    assert_same_ends(ours(*half), values)
    assert memory is None or memory < 4
