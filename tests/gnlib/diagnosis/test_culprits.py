"""What is planted in networks is found in all of them, and nothing else."""

import pytest
import torch
from torch import nn

from gnlib import GaussNewton

SEEDS = range(8)
KINDS = {
    "mlp": lambda: nn.Sequential(nn.Linear(6, 30), nn.ReLU(), nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 4)),
    "cnn": lambda: nn.Sequential(
        nn.Conv2d(1, 12, 3), nn.ReLU(), nn.Conv2d(12, 8, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 9, 4)
    ),
}


def drawn(seed):
    """Networks of two kinds by turns, and 12 samples."""
    generator = torch.Generator().manual_seed(seed)
    name = [*KINDS][seed % 2]
    torch.manual_seed(seed)
    shape = (12, 6) if name == "mlp" else (12, 1, 6, 6)
    net = KINDS[name]().double()
    with torch.no_grad():
        for layer in net:
            if isinstance(layer, nn.Linear | nn.Conv2d):
                layer.bias.uniform_(0.2, 0.5, generator=generator)  # so that hardly a unit is dead by chance
    return net, torch.randn(shape, generator=generator, dtype=torch.float64), generator


@pytest.mark.parametrize("seed", SEEDS)
def test_equal_samples_are_found(seed):
    net, x, generator = drawn(seed)
    assert GaussNewton(net, x).culprits().equal_samples == ()
    first, second = sorted(torch.randperm(12, generator=generator)[:2].tolist())
    x[second] = x[first]
    found = GaussNewton(net, x).culprits()
    assert [(pair.first, pair.second, pair.distance) for pair in found.equal_samples] == [(first, second, 0.0)]
    assert f"samples {first} and {second} are equal" in str(found)
    assert {i for i, _ in found.samples[:2]} == {first, second}
    assert sum(share for _, share in found.samples[:2]) > 0.99


@pytest.mark.parametrize("seed", SEEDS)
def test_nearly_equal_samples_are_found(seed):
    net, x, generator = drawn(seed)
    x[7] = x[3] + 1e-3 * torch.randn(x[3].shape, generator=generator, dtype=torch.float64)
    found = GaussNewton(net, x).culprits()
    assert [(pair.first, pair.second) for pair in found.equal_samples] == [(3, 7)]
    assert 1e-5 < found.equal_samples[0].distance < 1e-2
    assert "samples 3 and 7 are near each other" in str(found) and "keep both" in str(found)
    assert {i for i, _ in found.samples[:2]} == {3, 7}


@pytest.mark.parametrize("seed", SEEDS)
def test_constant_outputs_are_found(seed):
    net, x, generator = drawn(seed)
    assert GaussNewton(net, x).culprits().constant_outputs == ()
    a = int(torch.randint(4, (), generator=generator))
    with torch.no_grad():
        net[-1].weight[a] = 0
    found = GaussNewton(net, x).culprits()
    assert found.constant_outputs == (a,) and found.unmoved_outputs == ()
    assert f"output {a} is the same for all samples" in str(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_outputs_that_nothing_moves_are_found(seed):
    net, x, generator = drawn(seed)
    a = int(torch.randint(4, (), generator=generator))
    mask = torch.ones(4, dtype=torch.float64)
    mask[a] = 0
    found = GaussNewton(net, x, output=lambda y: y * mask).culprits()
    assert found.unmoved_outputs == (a,)
    assert found.outputs[0][0] == a and found.outputs[0][1] > 0.99
    assert f"output {a} reacts to no parameter" in str(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_equal_outputs_are_found(seed):
    net, x, generator = drawn(seed)
    a, b = sorted(torch.randperm(4, generator=generator)[:2].tolist())

    def output(y):
        columns = [y[:, b if i == a else i] for i in range(4)]
        return torch.stack(columns, 1)

    found = GaussNewton(net, x, output=output).culprits()
    assert [(pair.first, pair.second, pair.distance) for pair in found.equal_outputs] == [(a, b, 0.0)]


def test_a_head_of_zeros_is_told_as_what_it_is():
    net, x, _ = drawn(0)
    with torch.no_grad():
        net[-1].weight.zero_()
    found = GaussNewton(net, x).culprits()
    assert found.constant_outputs == (0, 1, 2, 3)
    assert found.dead_units == {}
    assert "no output reacts to anything before 4 yet" in str(found)


@pytest.mark.bad_input
def test_what_wrong_numbers_are_told():
    with pytest.raises(ValueError, match="most is 0"):
        GaussNewton(*drawn(0)[:2]).culprits(most=0)
