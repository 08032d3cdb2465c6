"""Liu, Zhu and Belkin 2020, Table 1: orders of the Hessian and of the change of the kernel."""

import math

import pytest
import torch
from gnbook.shared.hessian import hessian_ends
from gnbook.when_the_kernel_moves.networks import bottleneck, identity, shallow

from tests.strategies import exact


def means(widths, phi, build=None, runs=8):
    """Mean over networks of the norm of the Hessian of one output."""
    build = build or (lambda m, seed: shallow(m, 1, activation=torch.tanh, seeds=[seed]))
    sample = exact([[1.0, 1.0]])
    values = []
    for m in widths:
        ends = [hessian_ends(build(m, s), sample, output=lambda y: phi(y[0]), tolerance=1e-3) for s in range(runs)]
        values.append(sum(end.norm for end in ends) / runs)
    return values


def kernels(widths, build, runs=8):
    sample = exact([[1.0, 1.0]])
    return [sum(build(m, s).kernel(sample).item() for s in range(runs)) / runs for m in widths]


def slope_of(widths, values):
    return math.log(values[-1] / values[0]) / math.log(widths[-1] / widths[0])


@pytest.mark.claim("Liu Table 1, linear output layer", verdict="holds")
def test_the_row_of_a_linear_output_layer():
    widths = (64, 4096)
    assert -0.5 - 0.05 < slope_of(widths, means(widths, identity)) < -0.3
    assert abs(slope_of(widths, kernels(widths, lambda m, s: shallow(m, 1, activation=torch.tanh, seeds=[s])))) < 0.1


@pytest.mark.claim("Liu Table 1, non-linear output layer", verdict="fails")
def test_the_row_of_a_non_linear_output_layer():
    widths = (64, 4096)
    assert abs(slope_of(widths, means(widths, torch.exp, runs=12))) < 0.25


@pytest.mark.claim("Liu Table 1, bottleneck", verdict="holds")
def test_the_row_of_a_bottleneck():
    widths = (64, 4096)

    def build(m, seed):
        return bottleneck(m, 1, 1, activation=torch.tanh, seeds=[seed])

    norms = means(widths, identity, build, runs=16)
    assert abs(slope_of(widths, norms)) < 0.2 and norms[1] > 0.3
    assert abs(slope_of(widths, kernels(widths, build, runs=16))) < 0.2
