"""Liu, Zhu and Belkin 2020, appendix E: the Hessian by its blocks."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.gnbook.transition_to_linearity.helpers import (
    SLACK,
    gradients,
    hessian,
    networks,
    norm,
    second_derivatives,
    slopes,
    values,
)
from tests.strategies import exact, gaussian, instances, seeds


@pytest.mark.claim("Liu Lemma E.1", verdict="holds")
@instances
@given(seeds, st.integers(1, 3), st.integers(1, 3))
def test_a_matrix_is_no_larger_than_the_sum_of_its_blocks(seed, size, count):
    blocks = gaussian(seed, count, count, size, size)
    norms = torch.linalg.matrix_norm(blocks, 2)
    whole = norm(blocks.transpose(1, 2).reshape(count * size, count * size))
    assert whole <= norm(norms) * SLACK <= norms.sum() * SLACK**2


def blocks_of_the_hessian(weights, x, sigma, printed):
    """H^(l1, l2) of the hidden layers as Appendix E has them, or with its slips corrected."""
    h, b = values(weights, x, sigma), gradients(weights, x, sigma)
    pre = [w @ a / len(a) ** 0.5 for w, a in zip(weights[:-1], h, strict=False)]
    first = [slopes(sigma, z)[0] for z in pre]
    by_input = [f[:, None] * w / w.shape[1] ** 0.5 for f, w in zip(first, weights, strict=False)]
    by_weights = [torch.kron(f.diag().contiguous(), a[None] / len(a) ** 0.5) for f, a in zip(first, h, strict=False)]
    tensors = [second_derivatives(w, a, sigma) for w, a in zip(weights[:-1], h, strict=False)]

    def chain(start, stop):  # d alpha_stop / d w_start
        result = by_weights[start]
        for index in range(start + 1, stop + 1):
            result = by_input[index] @ result
        return result

    def block(l1, l2):
        aa, aw, ww = zip(*tensors, strict=True)
        total = torch.zeros(weights[l1].numel(), weights[l2].numel(), dtype=torch.float64)
        if l1 == l2:
            total = total + ww[l1] @ b[l1]
        elif not printed or l1 < l2:
            total = total + chain(l1, l2 - 1).mT @ (aw[l2] @ b[l2])
        for index in range(l2 + 1, len(h) - 1):
            right = chain(l2, index if printed else index - 1)
            total = total + chain(l1, index - 1).mT @ (aa[index] @ b[index]) @ right
        return total

    count = len(weights) - 1
    return {(l1, l2): block(l1, l2) for l1 in range(count) for l2 in range(l1, count)}


@pytest.mark.claim("Liu Appendix E, blocks of the Hessian", verdict="fails")
def test_one_factor_too_many_in_the_printed_blocks():
    weights = [exact([[w]]) for w in (1.0, 0.5, 1.0)]
    block = hessian(weights, exact([1.0]), torch.tanh)[0, 0]
    printed, corrected = (
        blocks_of_the_hessian(weights, exact([1.0]), torch.tanh, printed)[0, 0].item() for printed in (True, False)
    )
    assert math.isclose(corrected, block, rel_tol=1e-12) and abs(printed - block) > 0.01


@pytest.mark.claim("Liu Appendix E, blocks of the Hessian, corrected", verdict="holds")
@instances
@given(networks(skips=False))
def test_the_blocks_of_the_hessian(network):
    weights, x, sigma, _ = network
    h = hessian(weights, x, sigma, fixed=True)
    offsets = [0, *torch.tensor([w.numel() for w in weights[:-1]]).cumsum(0).tolist()]
    for (l1, l2), block in blocks_of_the_hessian(weights, x, sigma, printed=False).items():
        part = h[offsets[l1] : offsets[l1 + 1], offsets[l2] : offsets[l2 + 1]]
        assert torch.allclose(block, part, rtol=1e-8, atol=1e-9 * (1 + norm(h)))
