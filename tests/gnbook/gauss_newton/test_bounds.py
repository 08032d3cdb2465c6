"""Bounds on gradient descent."""

import pytest
from gnbook.gauss_newton.bounds import gradient_descent_bound


def test_gradient_descent_multiplies_its_factors():
    bounds = gradient_descent_bound([0.5, 0.25, 1.0], [1.0, 2.0, 0.0], distance=3.0)
    assert bounds.tolist() == [9.0, 4.5, 2.25, 2.25]
    assert gradient_descent_bound([], []).tolist() == [1.0]


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("steps", "convexities", "told"),
    [
        ([2.0], [1.0], r"The factors 1 - step \* convexity lie in .*, not in \[0, 1"),
        ([1.0], [-0.5], "not in"),
        ([0.1, 0.2], [1.0], "2 step sizes and 1 convexities"),
    ],
)
def test_steps_that_the_bound_does_not_cover_are_refused(steps, convexities, told):
    with pytest.raises(ValueError, match=told):
        gradient_descent_bound(steps, convexities)
