"""The tangent kernel: the Gram matrix before it is divided."""

import torch

from gnlib import gauss_newton_gram
from gnlib.jacobian import tangent_kernel
from tests.gnbook.shared.hessian_cases import gaussian, perceptron


def test_the_kernel_is_the_gram_matrix_times_n_with_several_outputs():
    module, x = perceptron(0, outputs=2), gaussian(1, 4, 3)
    kernel = tangent_kernel(module, x)
    assert kernel.shape == (8, 8) and torch.allclose(kernel, 4 * gauss_newton_gram(module, x), rtol=1e-14)


def test_equal_inputs_make_a_kernel_of_rank_one():
    module, x = perceptron(0), gaussian(1, 1, 3).expand(5, 3)
    values = torch.linalg.eigvalsh(tangent_kernel(module, x))
    assert values[-1] > 0.1 and values[:-1].abs().max() < 1e-13 * values[-1] * 5
