"""One hidden layer of leaky ReLUs, against Eq. 10 as it is written, and against all eigenvalues of the same matrix."""

import pytest
import torch
from gnbook.shared.hidden_layer import leaky_relu_gram

from gnlib import condition_number, linear_weights, load, whiten
from tests.benchmarks.race import DEVICES, assert_same_ends, race, sizes
from tests.oracles import leaky_relu_units, literal_eq_10

SLOPE = 0.01


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    # of the m terms of Eq. 10, each as large as the result, the literal sum takes some, and counts for all
    ("n", "k", "m", "stride", "some"),
    sizes([(20, 10, 60, 4, 60)], [(500, 10, 1000, 1, 50)]),
)
def test_leaky_relu(benchmark, n, k, m, stride, some, device):
    x = whiten(load("mnist", n, stride=stride)[0]).to(device)
    d = x.shape[1]
    weights = [w.to(device) for w in linear_weights([d, m, k], generator=torch.Generator().manual_seed(0))]
    few = [weights[0][:some], weights[1][:, :some]]
    found, literal, values, _ = race(
        benchmark,
        lambda: condition_number(leaky_relu_gram(weights, x, SLOPE), outputs=k),
        case=f"leaky ReLU, whitened MNIST, n={n}, k={k}, m={m}, d={d}",
        alternatives=[
            (f"Eq. 10, {some} terms times {m // some}", lambda: literal_eq_10(units(few, x), n), m // some, 100),
            ("same Gram + eigvalsh", lambda: torch.linalg.eigvalsh(leaky_relu_gram(weights, x, SLOPE)), 1, 3),
            ("same Gram, no eigenvalue", lambda: leaky_relu_gram(weights, x, SLOPE), 1, None),
        ],
        device=device,
    )
    assert_same_ends(found, values)
    torch.testing.assert_close(literal, leaky_relu_gram(few, x, SLOPE), rtol=0, atol=1e-10 * literal.max().item())


def units(weights, x):
    return leaky_relu_units(weights, x, SLOPE)
