"""How much longer Adam takes where all entries of a gradient shrink, as "Pruning before training" says."""

import pytest
import torch


def steps_of_adam(c):
    """Until f(w) = c w has left a tenth of its distance to the target 1."""
    weight = torch.zeros(1, requires_grad=True)
    adam = torch.optim.Adam([weight], lr=0.01)
    for step in range(2000):
        loss = (c * weight - 1).square()
        if loss < 0.01:
            return step
        adam.zero_grad()
        loss.backward()
        adam.step()
    raise AssertionError(f"no end in sight for c = {c}")


def test_adam_is_slower_by_one_factor_where_the_spectrum_sinks_by_two():
    assert steps_of_adam(0.1) / steps_of_adam(1.0) == pytest.approx(10, rel=0.1)
