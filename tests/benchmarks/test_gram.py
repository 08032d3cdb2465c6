"""The Gram matrix of a network's Jacobian: ours beside plain torch and the product alone.

Each runs in a process of its own, where its memory is seen.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple

import pytest
import torch
from gnbook.cost.networks import contracted
from gnbook.pruning.networks import VisionTransformer
from gnbook.shared.networks import ResidualNetwork, cnn, drawn, perceptron

from gnlib import load
from tests.benchmarks.alternatives import Looped, Recurrent, backward_passes, hooks, loop, product
from tests.benchmarks.memory import Apart
from tests.benchmarks.race import DEVICES, before_and_after, beside_a_busy_process, note, timed
from tests.gnlib.jacobian.cases import gram_matrix

LARGEST = 8  # GiB of a Jacobian that an alternative may hold


class Case(NamedTuple):
    """A network and its samples, in how many seconds and GiB ours is to be done, and what it is raced against."""

    name: str
    network: Callable
    sizes: tuple
    n: int
    data: str = "cifar10"
    stride: int = 1
    mode: str | None = None
    busy: bool = False  # beside another process
    rounds: int = 6
    memory: float = 4.0  # that ours is allowed
    seconds: float | None = None
    peak: float | None = None
    against: tuple = ()


def made(case, device="cpu"):
    x, _ = load(case.data, case.n, stride=case.stride)
    if case.data == "cifar10":
        x = x.reshape(case.n, 3, 32 // case.stride, -1)
    module = drawn(partial(case.network, *case.sizes), seed=0)
    return module.double().train(case.mode == "train").to(device), x.to(device)


def jacobian(case, device="cpu"):
    generator = torch.Generator().manual_seed(0)
    return (torch.randn(*jacobian_shape(*made(case)), generator=generator, dtype=torch.float64).to(device),)


def jacobian_shape(module, x):
    return len(x) * module(x[:2]).shape[1], sum(p.numel() for p in module.parameters())


class Other(NamedTuple):
    """An alternative, by how much its time is to be multiplied, and how many times faster ours has to be."""

    name: str
    work: Callable
    make: Callable = made  # its arguments
    scale: float = 1
    target: float | None = None
    holds_jacobian: bool = True
    is_gram: bool = True  # what it finds


RECIPE = Other("torch's recipe: Jacobians, contracted", contracted)
LOOP = Other("loop over autograd.grad, one product", loop)
PRODUCT = Other("that product alone", product, jacobian, is_gram=False)
PLAIN = (RECIPE, LOOP)
HOOKS = Other("hooks written by hand", hooks, target=1 / 1.5, holds_jacobian=False)
RESNET18 = partial(ResidualNetwork, (2, 2, 2, 2), large=True)


def looped(case, device="cpu"):
    module, x = made(case, device)
    return Looped(module), x


STEPS = Other("ours of a loop of linear layers", gram_matrix, looped, target=1 / 1.2, holds_jacobian=False)


def passes(some, times):
    name = f"{some} backward passes of the batch, times {times}"
    return Other(name, partial(backward_passes, many=some), scale=times, holds_jacobian=False, is_gram=False)


CASES = [
    Case("MLP", perceptron, (784, 500, 500, 10), 100, "mnist", seconds=0.15, against=PLAIN),
    Case("MLP", perceptron, (784, 2000, 2000, 10), 200, "mnist", seconds=2, against=PLAIN),
    Case("MLP", perceptron, (3072, 4096, 4096, 4096, 10), 100, seconds=2, peak=3, against=(*PLAIN, HOOKS)),
    Case("CNN", cnn, (16, 32, 64), 100, seconds=0.5, against=(*PLAIN, PRODUCT)),
    Case("ResNet20", ResidualNetwork, (), 50, seconds=2.2, against=(*PLAIN, PRODUCT)),
    Case("ResNet20, beside a busy process", ResidualNetwork, (), 50, busy=True, rounds=3, seconds=7, against=PLAIN),
    Case("ResNet20", ResidualNetwork, (), 1000, rounds=1, memory=12, seconds=362, peak=12.3, against=PLAIN),
    Case("ViT", VisionTransformer, (32,), 100, rounds=3, against=(*PLAIN, PRODUCT._replace(target=1 / 1.5))),
    Case("ViT", VisionTransformer, (32,), 500, rounds=1, against=(PRODUCT._replace(target=1 / 1.5),)),
    Case("LSTM", Recurrent, (), 32, "mnist", against=(LOOP, STEPS)),
    Case("ResNet18", RESNET18, (64,), 4, against=(RECIPE, LOOP._replace(target=1))),
    Case("ResNet18", RESNET18, (64,), 16, rounds=3, seconds=2, peak=0.5, against=PLAIN),
    Case("ResNet18", RESNET18, (64,), 64, rounds=1, seconds=25, peak=4, against=PLAIN),
    Case("ResNet18", RESNET18, (64, 1000), 4, rounds=1, against=(passes(20, 50),)),
    Case("ResNet20, one batch", ResidualNetwork, (), 16, mode="train", rounds=1, against=(passes(32, 5),)),
]


@pytest.mark.full_size
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}, n={case.n}")
def test_gram(benchmark, case, device):
    module, x = made(case)
    rows, columns = jacobian_shape(module, x)
    against, found = [], []

    def compare():
        for other in case.against:
            needed = 8 * rows * columns / 2**30
            if other.holds_jacobian and needed > LARGEST:
                against.append({"name": f"{other.name}: left out, {needed:.0f} GiB"})
                continue
            with Apart(other.work, other.make, case, device) as process:
                seconds, memory = other.scale * least(process), process.memory()
                against.append({"name": other.name, "seconds": seconds, "memory": memory, "target": other.target})
                if other.is_gram:
                    found.append(process.found())

    ours = partial(gram_matrix, mode=case.mode, memory=case.memory)
    beside = beside_a_busy_process() if case.busy else nullcontext()
    with beside, Apart(ours, made, case, device) as process:
        before_and_after(benchmark, process, compare, case.rounds)
        memory = process.memory()
        for gram in found:
            assert_same(process.found(), gram)
    size = f"n={case.n}, k={rows // case.n}, p={columns}"
    targets = {"target": case.seconds, "memory_target": case.peak}
    note(benchmark, f"{case.name}, {size}", against, device, memory=memory, **targets)
    assert None in (memory, case.peak) or memory < case.peak


def least(process):
    """The seconds of a call: the least of three, where that is not too long."""
    seconds = timed(process)[0]
    return min([seconds, *(timed(process)[0] for _ in range(2 * (seconds < 10)))])


def assert_same(gram, other):
    assert (gram - other).abs().max() < 1e-12 * other.abs().max()


SMALL = [
    Case("MLP", perceptron, (49, 30, 20, 4), 6, "mnist", stride=4),
    Case("CNN", cnn, (4, 6, 8), 6, stride=4),
    Case("ResNet", ResidualNetwork, (1, 4), 6, stride=4),
    Case("ViT", VisionTransformer, (8,), 3, stride=4),
    Case("ResNet18", RESNET18, (4, 4), 3, stride=2),
    Case("LSTM", Recurrent, (7, 5), 3, "mnist", stride=4),
]


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_plain_torch_finds_the_same_matrix(case):
    module, x = made(case)
    for way in {"MLP": (contracted, loop, hooks), "LSTM": (loop,)}.get(case.name, (contracted, loop)):
        assert_same(gram_matrix(module, x), way(module, x))
    if case.name == "LSTM":
        assert_same(gram_matrix(module, x), gram_matrix(*looped(case)))
