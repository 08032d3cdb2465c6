"""Inverses of blocks, shifted close to an end: right, and never further than the blocks remain definite."""

import math

import numpy as np
import pytest
import torch

from gnlib.eigen.shifted_inverse import (
    QUICK_FACTOR,
    RESHIFT_EVERY,
    ShiftedInverse,
    cholesky_solve,
    factor_shifted,
    inverse_of,
)
from tests.gnlib.eigen.blocks import WholeBlocks, coupled
from tests.oracles import normal, with_spectrum

VALUES = np.linspace(1, 4, 7)
MATRIX = with_spectrum(VALUES, seed=1)
signs = pytest.mark.parametrize("sign", [1, -1])


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("batch", [(), (3,)])
def test_two_triangular_solves_are_the_inverse(batch):
    matrix = MATRIX.expand(*batch, 7, 7) + torch.diag_embed(normal(*batch, 7, seed=2).abs())
    x = normal(*batch, 7, 2, seed=3)
    close(matrix @ cholesky_solve(torch.linalg.cholesky(matrix), x), x)


def test_the_inverse_of_a_definite_matrix_and_of_no_other():
    x = normal(7, 2, seed=3)
    close(MATRIX @ inverse_of(MATRIX)(x), x)
    with pytest.raises(torch.linalg.LinAlgError):
        inverse_of(-MATRIX)


@signs
def test_a_shifted_matrix_has_a_factor_up_to_the_end_and_none_beyond(sign):
    end, out = (1.0 if sign > 0 else 4.0), torch.empty(7, 7, dtype=torch.float64).mT
    before = MATRIX.clone()
    assert factor_shifted(MATRIX, end - sign * 1e-6, sign, out=out)
    close(out.tril() @ out.tril().T, sign * (MATRIX - (end - sign * 1e-6) * torch.eye(7).double()))
    assert not factor_shifted(MATRIX, end + sign * 1e-6, sign, out=out)
    assert torch.equal(MATRIX, before)


BLOCKS = WholeBlocks(coupled([VALUES, VALUES + 1, VALUES + 2], 0.0), 3)


def shifted(shift, sign=1, blocks=BLOCKS):
    inverse = ShiftedInverse(blocks, sign)
    assert inverse.factor(shift) is None
    return inverse


@signs
def test_the_product_is_that_with_the_inverse_of_the_shifted_blocks(sign):
    shift, x = (0.9 if sign > 0 else 6.1), normal(21, 3, seed=4)
    close(sign * (BLOCKS.matrix - shift * torch.eye(21).double()) @ shifted(shift, sign)(x), x)


def test_coupled_blocks_are_inverted_without_their_coupling():
    blocks = WholeBlocks(coupled([VALUES, VALUES + 1], 0.1), 2)
    x = normal(14, 2, seed=4)
    close(torch.block_diag(blocks.block(0), blocks.block(1)) @ shifted(0.0, 1, blocks)(x), x)


def test_outputs_of_a_group_share_the_block_of_the_first():
    blocks = WholeBlocks(BLOCKS.matrix, 3)
    blocks.groups = [range(1), range(1, 3)]
    x = normal(21, 2, seed=4)
    expected = torch.cat([inverse_of(blocks.block(i))(part) for i, part in zip((0, 1, 1), x.split(7), strict=True)])
    close(shifted(0.0, 1, blocks)(x), expected)


def test_the_product_has_no_part_in_the_null_space():
    null = torch.eye(7, dtype=torch.float64)[:, :1]
    matrix = MATRIX.clone()
    matrix[0] = matrix[:, 0] = 0
    product = shifted(0.0, 1, WholeBlocks(matrix, 1, null))(normal(7, 3, seed=4))
    assert not (null.T @ product).any()
    assert product.any()


@signs
def test_a_shift_beyond_a_block_names_it_and_leaves_everything_as_it_was(sign):
    near, far, culprit = (0.5, 1.5, 0) if sign > 0 else (6.5, 5.5, 2)
    inverse = shifted(near, sign)
    before = inverse.factors.clone()
    assert inverse.factor(far) == culprit
    assert inverse.shift == near
    assert torch.equal(inverse.factors, before)


def improved(inverse, errors):
    """The shifts after steps with these errors of an end that is one."""
    shifts = []
    for error in errors:
        inverse.improve(1.0, error)
        shifts.append(inverse.shift)
    return shifts


def test_a_slow_iteration_has_its_shift_brought_closer_every_few_steps():
    shifts = improved(shifted(0.5), [1e-2] * 2 * RESHIFT_EVERY)
    assert shifts[: RESHIFT_EVERY - 1] == [0.5] * (RESHIFT_EVERY - 1)
    assert shifts[RESHIFT_EVERY - 1] == pytest.approx(1 - 1e-2 / 4)
    assert shifts[-1] == shifts[RESHIFT_EVERY - 1]  # from there, no closer to speak of


def test_a_fast_iteration_keeps_its_shift():
    errors = [1e-2 / (2 * QUICK_FACTOR) ** i for i in range(RESHIFT_EVERY)]
    assert improved(shifted(0.5), errors) == [0.5] * RESHIFT_EVERY


def test_at_the_upper_end_the_shift_stays_above():
    inverse = shifted(8.0, -1)
    for _ in range(RESHIFT_EVERY):
        inverse.improve(6.0, 1e-2)
    assert inverse.shift == pytest.approx(6 * (1 + 1e-2 / 4))


def test_a_shift_that_goes_too_far_is_not_made():
    inverse = shifted(0.5)
    for _ in range(RESHIFT_EVERY):
        inverse.improve(1.2, 1e-2)  # an end that the first block reaches beyond
    assert inverse.shift == 0.5


def test_blocks_that_may_not_be_shifted_keep_theirs():
    blocks = WholeBlocks(BLOCKS.matrix, 3)
    blocks.shiftable = False
    assert improved(shifted(0.5, 1, blocks), [1e-2] * RESHIFT_EVERY) == [0.5] * RESHIFT_EVERY


def test_no_error_is_known_before_the_first_step():
    assert shifted(0.5).error == math.inf
