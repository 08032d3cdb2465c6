"""Chains of residual blocks, their condition numbers, and their trainings side by side."""

import pytest
import torch
from gnbook.adding_the_identity import chains
from gnbook.adding_the_identity.chains import CHAINS, condition_numbers, drawn, outputs, skip_of, trainings
from torch.nn.functional import layer_norm

SIZE = 12


@pytest.fixture(scope="module")
def images():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(60, SIZE, generator=generator), torch.randint(10, (60,), generator=generator)


@pytest.mark.parametrize("name", ["a quarter", "one, normalised", "zero, squeezing skip"])
def test_the_matrices_of_the_blocks_are_their_jacobians(name, images):
    chain = CHAINS[name]
    weights = {key: value.double() for key, value in drawn(chain, SIZE, 3).items()}
    x = images[0][:2]
    _, whole = condition_numbers(chain, weights, x)
    for z, kappa in zip(torch.relu(x.double() @ weights["first"].mT), whole, strict=True):
        blocks = torch.autograd.functional.jacobian(lambda z: _blocks(chain, weights, z), z)
        assert torch.linalg.cond(blocks).item() == pytest.approx(kappa.item(), rel=1e-4)


def test_the_outputs_are_those_of_the_blocks(images):
    for chain in CHAINS.values():
        weights = drawn(chain, SIZE, 4)
        z = _blocks(
            chain,
            {key: value.double() for key, value in weights.items()},
            images[0].double() @ weights["first"].double().mT,
            first=True,
        )
        z = layer_norm(z, (chains.UNITS,)) if chain.norm else z
        said = outputs(chain, {key: value[None] for key, value in weights.items()}, images[0][None])[0]
        assert torch.allclose(
            said.double(), z @ weights["last"].double().mT, rtol=1e-3, atol=1e-4 * z.abs().max().item()
        )


def _blocks(chain, weights, z, *, first=False):
    z, skip = (torch.relu(z) if first else z), skip_of(chain)
    for inner, outer in zip(weights["inner"], weights["outer"], strict=True):
        seen = layer_norm(z, (chains.UNITS,)) if chain.norm else z
        z = chain.shrink * (z @ skip + torch.relu(seen @ inner.mT) @ outer.mT)
    return z


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_runs_side_by_side_are_those_alone(optimizer, images):
    chain, rates = CHAINS["zero"], (0.003, 0.01)
    both = trainings(chain, optimizer, images, images, rates, [0, 1], 40, targets=(1.0,))
    alone = trainings(chain, optimizer, images, images, rates[1:], [1], 40, targets=(1.0,))
    assert both.steps[1.0].shape == both.correct.shape == (2, 2)
    assert both.steps[1.0][1, 1] == alone.steps[1.0] and 0 < alone.steps[1.0] <= 40
    assert both.correct[1, 1].item() == pytest.approx(alone.correct.item(), abs=0.04)
