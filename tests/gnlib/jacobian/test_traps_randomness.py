"""Modules that draw random numbers: refused, unless the function that they compute is fixed."""

import copy
import cProfile
import pickle
import random
import sys
import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from gnlib import condition_number
from tests.gnlib.jacobian.cases import D, K, N, Net, data, drop_path, made, vision
from tests.gnlib.jacobian.helpers import HELD, assert_refused, assert_right

CHANGE = "change from call to call"
RANDOM = f"{CHANGE}: a random function has no Jacobian"


def stochastic_depth(p, rows=True, **options):
    """As in torchvision: a sample (row) or the whole batch is dropped."""
    return lambda: Net(lambda self, h: h + drop_path(self, h.sin(), p, rows), **options)


def lazily(self, h):
    if self.features is None:
        self.features = torch.randn(D, D)
    return (h @ self.features).cos()


def layer_drop(draw, p=0.1, **held):
    return lambda: Net(lambda self, h: h if draw(self) < p else h + h.sin(), **held)


zero_head = partial(partial, Net, zero_head=True)
OWN_OF_TORCH = torch.Generator().manual_seed(1)
RANDOM_MODULES = {
    "stochastic depth, rows": stochastic_depth(0.1),
    "stochastic depth, rarely": stochastic_depth(1e-4, rows=False, zero_head=True),
    "vision transformer": partial(vision, 0.2),
    "re-zero": lambda: Net(
        lambda self, h: h + self.alpha * functional.dropout(h.sin(), 0.1, self.training),
        alpha=nn.Parameter(torch.zeros(())),
    ),
    "dropout, functional, zero head": zero_head(lambda self, h: functional.dropout(h, 0.5, True)),
    "layer drop, Python": layer_drop(lambda self: random.random()),
    "layer drop, NumPy": layer_drop(lambda self: np.random.rand()),  # noqa: NPY002
    "layer drop, torch": layer_drop(lambda self: torch.rand(()), 1e-3),
    "layer drop, own generator": layer_drop(lambda self: torch.rand((), generator=self.own), own=OWN_OF_TORCH),
    "layer drop, own generator of NumPy": layer_drop(lambda self: self.own.random(), own=np.random.default_rng(0)),
    "layer drop, own generator of Python": layer_drop(lambda self: self.own.random(), own=random.Random(0)),
    "layer drop, generator held elsewhere": layer_drop(lambda self: torch.rand((), generator=HELD)),
    "noise of the system": lambda: Net(lambda self, h: h * random.SystemRandom().random()),
    "from ten samples on": lambda: Net(lambda self, h: h if len(h) < 10 else h * (torch.rand(()) < 0.99)),
    "reparametrised": zero_head(lambda self, h: h + torch.randn_like(h) * (h - 4).exp()),
    "permuted": zero_head(lambda self, h: h[:, torch.randperm(D)]),
    "drawn at the first call": lambda: Net(lazily, features=None),
}


@pytest.mark.parametrize("mode", [None, "train"])
@pytest.mark.parametrize("name", RANDOM_MODULES)
def test_random_functions_are_refused(name, mode):
    for n in (N,) if "ten" in name else (N, 1):
        assert_refused(made(RANDOM_MODULES[name]), data(n), RANDOM, mode=mode)


@pytest.mark.parametrize("name", [*RANDOM_MODULES][:4])
def test_what_is_random_in_training_is_right_in_evaluation(name):
    net = made(RANDOM_MODULES[name])
    assert_refused(net, data(4), "or pass mode='eval'")
    assert_right(net, data(8), copy.deepcopy(net).eval(), mode="eval")


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", ["stochastic depth, rows", "vision transformer", "dropout, functional, zero head"])
def test_what_is_dropped_is_refused_whatever_the_seed(name, seed):
    net = made(RANDOM_MODULES[name], seed)
    torch.manual_seed(seed)
    assert_refused(net, data(seed=seed), RANDOM, mode="train")


# Generators that no module holds: of this file, in an object, in a list, in another file, in a closure

OWN, OLD, OTHER = np.random.default_rng(0), np.random.RandomState(0), type(random)("of_another_file")
OTHER.stream, BY_NAME = random.Random(4), {"drop": np.random.default_rng(1)}
SOURCE, IN_A_LIST = SimpleNamespace(generator=random.Random(3)), [np.random.default_rng(2)]


def drawn_by_a_helper():
    return OLD.rand()


def in_a_closure():
    stream = np.random.default_rng(5)
    return layer_drop(lambda self: stream.random(), 0.02)()


HELD_NOWHERE = {
    "of this file": layer_drop(lambda self: OWN.random(), 0.02),
    "of this file, old": layer_drop(lambda self: drawn_by_a_helper(), 0.02),
    "in a dictionary": layer_drop(lambda self: BY_NAME["drop"].random(), 0.02),
    "in a list": layer_drop(lambda self: IN_A_LIST[0].random(), 0.02),
    "in an object": layer_drop(lambda self: SOURCE.generator.random(), 0.02),
    "in an object of the module": layer_drop(
        lambda self: self.source.generator.random(), 0.02, source=SimpleNamespace(generator=random.Random(6))
    ),
    "in another file": layer_drop(lambda self: OTHER.stream.random(), 0.02),
    "in a closure": in_a_closure,
}


@pytest.mark.parametrize("name", HELD_NOWHERE)
def test_generators_that_no_module_holds_are_seen_and_put_back(name):
    streams = OWN, OLD, OTHER.stream, BY_NAME["drop"], SOURCE.generator, *IN_A_LIST
    states = [pickle.dumps(stream) for stream in streams]
    for seed in range(4):  # a layer is left out in one call of fifty
        assert_refused(made(HELD_NOWHERE[name], seed), data(seed=seed), RANDOM)
    assert [pickle.dumps(stream) for stream in streams] == states


# States, some of which a trial of a few calls cannot see, and the matrix does


def counting(self, h):
    self.calls += 1
    return h * self.calls


def cached(self, h):
    self.seen.append(float(h.detach().sum()))
    return h + 1e-3 * len(self.seen)


def last_of_all(self, h):
    before, self.last = self.last, h.detach().mean(0)
    return h + before


def every(period):
    """Every so many calls something else; in place, so that samples go one by one."""
    calls = [0]

    def between(self, h):
        calls[0] += 1
        return torch.zeros(len(h), D, dtype=h.dtype).add_(h) * (2 if calls[0] % period == 0 else 1)

    return lambda: Net(between, calls=calls)


STATES = {
    "calls": (lambda: Net(counting, calls=0), "and so does calls of module"),
    "a cache that grows": (lambda: Net(cached, seen=[]), "so does seen of module"),
    **{f"every {period}": (every(period), f"outputs {CHANGE}") for period in (11, 20, 33, 47)},
    "the last outputs": (lambda: Net(last_of_all, last=torch.zeros(D)), CHANGE),
    "the clock": (lambda: Net(lambda self, h: h * (time.perf_counter() % 1)), CHANGE),
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_is_named_where_outputs_change_with_it(name):
    make, message = STATES[name]
    assert_refused(made(make), data(), message)


def test_a_state_of_whole_batches_alone_is_refused():
    def of_many(self, h):
        return counting(self, self.norm(h)) if len(h) > 2 else self.norm(h)

    net = made(lambda: Net(of_many, calls=0, norm=nn.BatchNorm1d(D)))
    assert_refused(net, data(), "calls of module", mode="train")


# Noise that does not matter, or is fixed


def own_seed(self, h, dtype=None):
    return h + torch.randn(D, dtype=dtype, generator=torch.Generator().manual_seed(0))


def global_seed(self, h):
    torch.manual_seed(0)
    return h + torch.randn(D)


FIXED = partial(own_seed, dtype=torch.float64)


@pytest.mark.parametrize(
    "make, meant",
    [
        (layer_drop(lambda self: torch.rand(()), 0.0), lambda self, h: h + h.sin()),  # drawn but not used
        (stochastic_depth(0.0), lambda self, h: h + h.sin()),
        (partial(Net, own_seed), FIXED),
        (partial(Net, global_seed), FIXED),
    ],
)
def test_noise_that_does_not_matter_or_is_fixed_is_accepted(make, meant):
    assert_right(made(make), data(8), made(partial(Net, meant)))


def test_a_network_can_be_profiled():
    """Generators are looked for by the hook of profilers, of which there is one."""
    net, profile = made(lambda: nn.Linear(D, K)), cProfile.Profile()
    expected = condition_number(net, data(5)).value

    def afterwards():
        return True

    with profile:
        found = condition_number(net, data(5)).value
        afterwards()
    assert found == expected and any(entry.code is afterwards.__code__ for entry in profile.getstats())
    assert sys.getprofile() is None
