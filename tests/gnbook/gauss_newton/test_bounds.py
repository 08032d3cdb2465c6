"""Bounds on gradient descent."""

import pytest
import torch
from gnbook.gauss_newton.bounds import gradient_descent_bound


def test_gradient_descent_multiplies_its_factors():
    bounds = gradient_descent_bound([0.5, 0.25, 1.0], [1.0, 2.0, 0.0], distance=3.0)
    assert bounds.tolist() == [9.0, 4.5, 2.25, 2.25]
    assert gradient_descent_bound([], []).tolist() == [1.0]


@pytest.mark.parametrize("condition", [1.0, 10.0, 1000.0])
def test_gradient_descent_on_a_quadratic_stays_below_its_bound(condition):
    curvature = torch.tensor([1.0, 1 / condition], dtype=torch.float64)
    point = torch.tensor([0.6, 0.8], dtype=torch.float64)
    squared = [1.0]
    for _ in range(20):
        point = point - curvature * point
        squared.append((point**2).sum().item())
    bound = gradient_descent_bound([1.0] * 20, [1 / condition] * 20)
    assert all(s <= b + 1e-12 for s, b in zip(squared, bound.tolist(), strict=True))


@pytest.mark.bad_input
@pytest.mark.parametrize("step, convexity", [(2.0, 1.0), (1.0, -0.5)])
def test_gradient_descent_refuses_steps_that_the_bound_does_not_cover(step, convexity):
    with pytest.raises(ValueError, match=r"The factors 1 - step \* convexity lie in .*, not in \[0, 1"):
        gradient_descent_bound([step], [convexity])


@pytest.mark.bad_input
def test_a_bound_for_steps_and_curvatures_of_different_number_is_refused():
    with pytest.raises(ValueError, match="2 step sizes and 1 convexities"):
        gradient_descent_bound([0.1, 0.2], [1.0])
