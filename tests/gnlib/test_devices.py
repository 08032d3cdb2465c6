"""Tensors are made on the device of what a function is given: whatever the default device is, and on a GPU."""

import copy
import dataclasses
from functools import partial

import numpy as np
import pytest
import scipy
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from gnlib import (
    GaussNewton,
    SecondMoment,
    bounds,
    condition_number,
    linear_gauss_newton,
    linear_network,
    linear_weights,
    load,
    second_moment,
    whiten,
)
from tests.gnlib.jacobian.cases import gram_matrix
from tests.oracles import network, normal, samples, with_spectrum


def module(*layers):
    """Sequential layers, each made by a function, with random weights in double precision."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(*(make() for make in layers)).double()


def mlp(d, hidden, k):
    return module(partial(nn.Linear, d, hidden), nn.Tanh, partial(nn.Linear, hidden, k))


CNN = module(partial(nn.Conv2d, 2, 5, 3, padding=1), nn.SiLU, nn.Flatten, partial(nn.Linear, 180, 3))
NORMALISED = module(partial(nn.Linear, 5, 8), partial(nn.BatchNorm1d, 8), nn.Tanh, partial(nn.Linear, 8, 2))
NORMALISED(2 * normal(30, 5, seed=7) + 1)  # gives the running statistics something to say


def linear(*widths, white=False, deficient=False):
    """Weights and a second moment."""
    x = normal(widths[0] // 2 if deficient else 3 * widths[0], widths[0], seed=2)
    return network(widths, seed=1), second_moment(whiten(x) if white else x)


def kappa(weights, moment, skip=0.0, **options):
    return condition_number(linear_gauss_newton(weights, moment, skip), **options)


def through_scipy(weights, moment, start):
    operator = linear_gauss_newton(weights, moment).to_scipy()
    return operator @ start, scipy.sparse.linalg.eigsh(
        operator, 2, which="LA", v0=start, tol=1e-5, return_eigenvectors=False
    )


X, FLAT = normal(20, 6, seed=1), samples(20, 6, rank=4, seed=1)
MOMENT = X.mT @ X / len(X)
DEEP, PAIR = network((6, 9, 7, 3), seed=2), network((6, 9, 3), seed=3)
LARGE = np.linspace(1, 2, 520)
SINGULAR = np.append(np.zeros(30), np.linspace(1, 2, 500))

# What another device computes alike: a tensor, or a condition number.
UNIQUE = {
    "one layer": (kappa, *linear(40, 12)),
    "two layers": (kappa, *linear(40, 60, 12)),
    "iteration": (kappa, *linear(40, 60, 50, 12)),
    "iteration, white": (kappa, *linear(40, 60, 50, 12, white=True)),
    "iteration, deficient": (kappa, *linear(40, 60, 50, 20, deficient=True)),
    "iteration, skips": (kappa, *linear(24, 24, 24, 24), 1.0),
    "formed": (kappa, *linear(6, 7, 5, 3)),
    "product of a Kronecker sum": (
        lambda w, m, v: linear_gauss_newton(w, m) @ v,
        *linear(6, 7, 5, 3),
        normal(18, 2, seed=4),
    ),
    "dense Kronecker sum": (lambda *case: linear_gauss_newton(*case).dense(), *linear(6, 7, 5, 3)),
    "Gram matrix of an mlp": (gram_matrix, mlp(5, 7, 3), normal(6, 5, seed=2)),
    "Gram matrix of a cnn": (gram_matrix, CNN, normal(3, 2, 6, 6, seed=2)),
    "Gram matrix, coupled": (partial(gram_matrix, mode="train"), NORMALISED, normal(6, 5, seed=2)),
    "Jacobian": (lambda *case: torch.cat([*GaussNewton(*case).jacobian()], 1), mlp(5, 7, 3), normal(6, 5, seed=2)),
    "network": (condition_number, mlp(5, 7, 3), normal(6, 5, seed=3)),
    "network, large": (condition_number, mlp(30, 200, 5), normal(110, 30, seed=3)),
    "network, by its singular values": (condition_number, mlp(5, 7, 3), normal(40, 5, seed=3)),
    "network, batch norm": (partial(condition_number, mode="train"), NORMALISED, normal(6, 5, seed=3)),
    "large matrix": (partial(condition_number, outputs=2, method="iteration"), with_spectrum(LARGE, seed=5)),
    "large matrix, one output": (condition_number, with_spectrum(LARGE, seed=5)),
    "large singular matrix": (condition_number, with_spectrum(SINGULAR, seed=6)),
}
CASES = UNIQUE | {
    "second moment": (second_moment, X),
    "whitening": (whiten, X),
    "range of the data": (SecondMoment.from_data, FLAT),
    "range of a second moment": (SecondMoment.from_matrix, MOMENT),
    "linear network": (linear_network, DEEP, X),
    "in SciPy": (through_scipy, DEEP, MOMENT, np.ones(18)),
    "Lemma 1": (bounds.zhao_lemma_1, PAIR, MOMENT),
    "Lemma 2, terms": (bounds.zhao_lemma_2_terms, DEEP, MOMENT),
    "sharper bound": (bounds.sharp_linear, DEEP, MOMENT),
    "tangent kernel": (lambda *case: GaussNewton(*case).tangent_kernel(), mlp(6, 8, 3), X),
    "first layer": (partial(kappa, method="first layer"), *linear(40, 9, 30, white=True)),
    "layers": (partial(kappa, method="layers"), PAIR, torch.eye(6, dtype=torch.float64)),
    "blocks": (partial(kappa, method="blocks"), PAIR, MOMENT),
    "MNIST": (partial(load, "mnist", 20, stride=4),),
    "CIFAR-10 in gray": (partial(load, "cifar10", 20, stride=4, grayscale=True),),
    "weights": (lambda: linear_weights([3, 5, 2], generator=torch.Generator().manual_seed(0)),),
    "singular matrix": (condition_number, with_spectrum([0.0, 2.0, 5.0], seed=7)),
}


def on(device, case):
    """What a function returns for copies of its arguments on this device; a case is a function and its arguments."""
    function, *arguments = case
    return function(*(moved(argument, device) for argument in arguments))


def moved(argument, device):
    if isinstance(argument, torch.Tensor | nn.Module):
        return copy.deepcopy(argument).to(device)
    if isinstance(argument, tuple) and hasattr(argument, "_fields"):
        return type(argument)(*(moved(one, device) for one in argument))
    if isinstance(argument, SecondMoment):
        return SecondMoment(*(moved(one, device) for one in argument), argument.error)
    return [moved(one, device) for one in argument] if isinstance(argument, list) else argument


def parts(value):
    """Yield a value, and what it holds if it is a list, tuple, mapping or dataclass, each with its type."""
    kind = type(value)
    if dataclasses.is_dataclass(value):
        value = [getattr(value, field.name) for field in dataclasses.fields(value) if field.compare]
    if isinstance(value, dict):
        value = [*value.items()]
    yield kind, None if isinstance(value, list | tuple) else value
    for one in value if isinstance(value, list | tuple) else ():
        yield from parts(one)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_tensors_are_made_on_the_device_of_the_arguments(case):
    """With all arguments on the CPU, a function finds the same whatever the default device is, bit by bit.

    On "meta" a tensor that is made without `device=` has no data, and is of no use beside those of the CPU.
    """
    expected = on("cpu", case)
    with torch.device("meta"):
        found = on("cpu", case)
    for (kind, one), (other_kind, other) in zip(parts(found), parts(expected), strict=True):
        assert kind is other_kind
        if isinstance(other, torch.Tensor):
            assert one.device.type == "cpu" and one.dtype == other.dtype
            assert torch.equal(one.nan_to_num(), other.nan_to_num())
        else:
            np.testing.assert_array_equal(one, other)


class NoLargeCopyToTheCPU(TorchDispatchMode):
    """Fail where a tensor of more than this many entries leaves the GPU."""

    limit = 10_000

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function.overloadpacket in (torch.ops.aten._to_copy, torch.ops.aten.copy_):
            source = args[1] if function.overloadpacket is torch.ops.aten.copy_ else args[0]
            if source.is_cuda and not result.is_cuda:
                assert source.numel() <= self.limit, f"{tuple(source.shape)} were copied to the CPU"
        return result


def assert_close(found, expected):
    if isinstance(expected, torch.Tensor):
        assert found.is_cuda
        torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=1e-8 * expected.abs().max().item())
        return
    assert found.rank == expected.rank
    assert found.largest == pytest.approx(expected.largest, rel=1e-8)
    assert found.smallest == pytest.approx(expected.smallest, rel=1e-8)


@pytest.mark.cuda
@pytest.mark.parametrize("case", UNIQUE.values(), ids=UNIQUE.keys())
def test_cuda_agrees_with_the_cpu_and_copies_nothing_large_to_it(case):
    with NoLargeCopyToTheCPU():
        found = on("cuda", case)
    assert_close(found, on("cpu", case))
