"""One measurement: ours, timed by pytest-benchmark, beside the alternative, timed once in the same run."""

import subprocess
import sys
from contextlib import contextmanager
from itertools import count
from time import perf_counter

import pytest
import torch

EPS = torch.finfo(torch.float64).eps
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def sizes(small, full):
    """The sizes of a case: the small ones are tests like others, the full ones are for `make bench`."""
    marked = [pytest.param(*size, id=name(size), marks=pytest.mark.full_size) for size in full]
    return [pytest.param(*size, id=name(size)) for size in small] + marked


def name(size):
    return "-".join(map(str, size))


def race(benchmark, ours, *, case, alternatives=(), rounds=6, device="cpu", **notes):
    """Time ours, and each alternative once in the middle of it, and return what they found.

    An alternative is its name, a function, by how much its time is to be multiplied, and how many times faster ours
    has to be.
    """
    against, others = [], []

    def compare():
        for label, run, scale, target in alternatives:
            seconds, other = timed(run)
            others.append(other)
            against.append({"name": label, "seconds": scale * seconds, "target": target})

    found = before_and_after(benchmark, ours, compare, rounds)
    note(benchmark, case, against, device, **notes)
    return found, *others


def before_and_after(benchmark, ours, between, rounds):
    """Time ours, half of the rounds before something else and half after, since the speed of a machine drifts."""
    warmup_rounds = int(rounds > 1)
    calls, done = count(), []

    def in_the_middle():
        if next(calls) == warmup_rounds + rounds // 2:
            done.append(between())

    found = benchmark.pedantic(ours, setup=in_the_middle, rounds=rounds, warmup_rounds=warmup_rounds)
    if not done:  # one call only, where nothing is timed
        between()
    return found


def note(benchmark, case, against, device, **notes):
    """Keep what the table says of a case beside its seconds."""
    name_of = torch.cuda.get_device_name() if device == "cuda" else device
    where = {"device": name_of, "threads": torch.get_num_threads()}
    benchmark.extra_info.update(case=case, against=against, **where, **notes)


def timed(run):
    """Seconds that a function takes, and what it returns."""
    _wait()
    start = perf_counter()
    result = run()
    _wait()
    return perf_counter() - start, result


@contextmanager
def beside_a_busy_process():
    """Have another process multiply matrices meanwhile, with as many threads as there are cores."""
    work = "import torch; a = torch.eye(1000, dtype=torch.float64); print(flush=True)\nwhile True: a @ a"
    with subprocess.Popen([sys.executable, "-c", work], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


def assert_same_ends(found, values):
    """Compare with all eigenvalues, ascending, to 1e-8 or to what these resolve themselves, `eps * kappa`."""
    largest, smallest = values[-1].item(), values[-found.rank].item()
    assert found.resolved
    assert found.largest == pytest.approx(largest, rel=1e-8)
    assert found.smallest == pytest.approx(smallest, rel=max(1e-8, EPS * largest / smallest))


def _wait():
    if torch.cuda.is_available():
        torch.cuda.synchronize()
