"""That a wrong type or shape in gnlib, or in what it returns, fails the test that meets it."""

import jaxtyping
import pytest
import torch
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import as_float64, as_samples
from tests.annotations import checked

vector, matrix, cube = torch.ones(3), torch.ones(2, 3), torch.ones(1, 2, 3)


@checked
def first(x: Float[Tensor, "n d"], y: Float[Tensor, "n k"]) -> Float[Tensor, " d"]:
    return x[0] if len(x) < 5 else x[:, 0]


@checked
def half(n: float) -> int:
    return n / 2 if n < 0 else int(n / 2)


@pytest.mark.parametrize(
    "call",
    [
        lambda: as_samples(vector),
        lambda: as_float64(matrix, 3),
        lambda: as_float64(array=matrix, name=None),
        lambda: first(matrix, vector),
        lambda: first(matrix, torch.ones(3, 2)),
        lambda: first([matrix], matrix),
        lambda: first(torch.ones(6, 3), torch.ones(6, 1)),
        lambda: half("4"),
        lambda: half(-1.0),
    ],
)
def test_wrong_types_and_shapes_are_errors(call):
    with pytest.raises(BeartypeCallHintViolation):
        call()


def test_a_function_within_another_is_checked_each_time_and_is_its_own():
    def times(factor):
        @checked
        def multiplied(x: Float[Tensor, "n d"], *, twice: bool = False) -> Float[Tensor, "n d"]:
            return factor * x * (2 if twice else 1)

        return multiplied

    double, triple = times(2), times(3)
    assert double(matrix).sum() == 12 and triple(matrix, twice=True).sum() == 36
    for wrong in (lambda: double(vector), lambda: triple(matrix, twice="no"), lambda: times(cube)(matrix)):
        with pytest.raises(BeartypeCallHintViolation):
            wrong()


def test_right_ones_are_not_and_an_int_is_a_float():
    assert first(matrix, torch.ones(2, 7)).shape == (3,) and half(4) == 2
    assert as_samples(torch.ones(4, 1)).shape == (4, 1)  # each call has sizes of its own


@pytest.mark.bad_input
def test_a_function_may_complain_itself():
    assert jaxtyping.config.jaxtyping_disable
    with pytest.raises(ValueError, match="samples in rows"):
        as_samples(vector)
