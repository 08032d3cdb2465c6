"""One network, in a process of its own: `python -m tests.benchmarks.trial.one FOLDER NETWORK BUDGET`.

All variants are made first, so that their goal is common; then each is trained.
"""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import torch
from gnbook.your_own_network.sixty import AT_ITS_RATE, CANDIDATE, ENGINEER, FIRST, PLAIN, STEPS
from torch import nn

from tests.benchmarks.peers.common import reason, write_json
from tests.benchmarks.trial import libraries, peers
from tests.benchmarks.trial.cases import Case, Data
from tests.benchmarks.trial.engineer import engineer
from tests.benchmarks.trial.ours import ask, candidates
from tests.benchmarks.trial.training import GOAL, RATES, best_run, first_loss, held_out, train

SEEDS = 0, 1, 2
OPTIMIZERS = [*RATES]
USUAL, LIGHTNING, FASTAI = "usual recipe", "Lightning's rate", "fastai's rate"
GRADINIT, METAINIT = "GradInit", "MetaInit"


@dataclass(frozen=True, eq=False)
class Variant:
    """A network to be trained, at the best rate of the grid or at one."""

    name: str
    seed: int
    optimizer: str
    module: nn.Module | None  # None where it could not be made
    what: str = ""
    rate: float | None = None
    why: str = ""
    seconds: float | None = None


def variants(case: Case, data: Data, seeds: Sequence[int], budget: float) -> Iterator[Variant]:
    """Yield all variants; what cannot be made has a reason."""
    for seed in seeds:
        plain = case.module(seed)
        changed = engineer(plain, case, data.x, data.y, seed)
        for optimizer in OPTIMIZERS:
            yield Variant(PLAIN, seed, optimizer, plain)
            yield Variant(ENGINEER, seed, optimizer, changed)
    plain, tried = case.module(seeds[0]), list[tuple[str, str]]()
    for seed in seeds:
        for optimizer in OPTIMIZERS:
            report, why = _made(partial(ask, case, case.module(seed), data, optimizer, budget))
            what, seconds = ("", None) if report is None else (report.suggestions[:1], report.seconds)
            first = {"what": "".join(what), "why": why, "seconds": seconds}
            module = None if report is None else report.module
            yield Variant(FIRST, seed, optimizer, module, **first)  # type: ignore[arg-type]
            if report and report.rate:
                rate = report.rate * (case.unit(data.y) if optimizer == "sgd" else 1.0)  # losses have that unit
                yield Variant(AT_ITS_RATE, seed, optimizer, report.module, first["what"], rate)  # type: ignore[arg-type]
            if report and seed == seeds[0]:
                tried += [(optimizer, each) for each in report.tried]
    for optimizer, what in tried:
        module, why = _made(lambda what=what: candidates(case, plain, data, [what])[what])
        yield Variant(CANDIDATE, seeds[0], optimizer, module, what, why=why)
    yield from _peers(case, data, plain, seeds[0])


def _made(make: Callable[[], Any]) -> tuple[Any, str]:
    try:
        return make(), ""
    except Exception as error:  # whatever it is, the trial goes on
        return None, reason(error)


def _peers(case: Case, data: Data, plain: nn.Module, seed: int) -> Iterator[Variant]:
    module, why = _made(partial(peers.usual, case, plain, data))
    yield Variant(USUAL, seed, "adam", module, rate=peers.RECIPE_RATE, why=why)
    for name, find in ((LIGHTNING, peers.lightning_rate), (FASTAI, peers.fastai_rate)):
        for optimizer in OPTIMIZERS:
            rate, why = _made(partial(find, case, plain, data, optimizer))
            yield Variant(name, seed, optimizer, plain if rate else None, rate=rate, why=why)
    drawn, no = _made(partial(peers.metainit, case, plain, data))
    for optimizer in OPTIMIZERS:
        yield Variant(METAINIT, seed, optimizer, drawn, why=no)
        module, why = _made(partial(peers.gradinit, case, plain, data, optimizer))
        yield Variant(GRADINIT, seed, optimizer, module, why=why)


def rows_of(case: Case, seeds: Sequence[int] = SEEDS, budget: float = 20.0) -> list[dict[str, object]]:
    """Return a row for each variant of a network."""
    data, begun = case.data(), process_time()
    made = [*variants(case, data, seeds, budget)]
    firsts = [first_loss(case, v.module, data) if v.module else math.inf for v in made]
    goal = GOAL * min(loss for loss in firsts if math.isfinite(loss))
    plain = case.module(seeds[0])
    base = {
        **{"library": case.library, "kind": case.kind, "prepared": int(case.prepared)},
        **{"task": "regression" if case.is_regression else "classification", "goal": goal},
        **{"parameters": sum(p.numel() for p in plain.parameters()), "samples": len(data.y)},
        **{"epoch_seconds": epoch_seconds(case, plain, data), "making_seconds": process_time() - begun},
    }
    rows: list[dict[str, object]] = []
    known: dict[tuple[object, ...], dict[str, object]] = {}
    for variant, first in zip(made, firsts, strict=True):
        same = known.get((variant.what, variant.seed, variant.optimizer)) if variant.name == CANDIDATE else None
        found = same or _trained(case, variant, data, goal)
        if variant.name == FIRST and variant.module:
            known[variant.what, variant.seed, variant.optimizer] = found
        rows.append(
            {
                **base,
                **{"variant": variant.name, "what": variant.what, "seed": variant.seed, "optimizer": variant.optimizer},
                **{"first_loss": first if math.isfinite(first) else None, **found},
                **{"report_seconds": variant.seconds, "why": variant.why},
            }
        )
    return rows


def _trained(case: Case, variant: Variant, data: Data, goal: float) -> dict[str, object]:
    """Return what training a variant found."""
    if variant.module is None:
        return {"state": "none"}
    if variant.rate is None:
        run, searched = best_run(case, variant.module, data, variant.optimizer, goal)
    else:
        run = train(case, variant.module, data, variant.optimizer, variant.rate, goal, STEPS)
        searched = len(run.losses)
    loss = held_out(case, run.module, data)
    return {
        "searched": searched,
        **{"rate": run.rate, "state": run.state, "steps": int(run.steps) if run.steps < math.inf else None},
        **{"last_loss": run.losses[-1] if math.isfinite(run.losses[-1]) else None},
        **{"held_out_loss": loss if math.isfinite(loss) else None},
    }


def epoch_seconds(case: Case, module: nn.Module, data: Data) -> float:
    """Return the CPU seconds of forward and backward passes of a thousand samples, the least of five measurements."""
    taken = []
    for _ in range(5):
        start = process_time()
        case.loss_of(module, data.x, data.y).backward()
        taken.append(process_time() - start)
    return min(taken[1:]) * 1000 / len(data.y)


def main(folder: Path, name: str, budget: float) -> None:
    """Write the rows of a network as a whole."""
    libraries.declare()
    from tests.benchmarks.trial.networks import CASES

    torch.set_num_threads(1)
    start = perf_counter()
    rows = rows_of(CASES[name], SEEDS, budget)
    write_json(folder / "found" / f"{name}.json", {"rows": rows, "seconds": perf_counter() - start})


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
