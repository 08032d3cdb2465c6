"""The advice of gnlib: the only module of the trial that knows it."""

import copy
from dataclasses import dataclass
from time import process_time

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

import gnlib
from gnlib.advice.candidates import Setting, arguments_of, changed, changes_for
from tests.benchmarks.trial.cases import Case, Data


@dataclass(frozen=True, eq=False)
class Report:
    """What was advised: the suggestions in words, the first as a module with its rate, and all that was tried."""

    suggestions: tuple[str, ...]
    module: nn.Module | None
    rate: float | None
    tried: tuple[str, ...]
    seconds: float


def ask(case: Case, module: nn.Module, data: Data, optimizer: str, budget: float) -> Report:
    """Return the advice on a network, with the CPU seconds that it took."""
    start = process_time()
    together = case.together or any(isinstance(m, _BatchNorm) for m in module.modules())
    mode = "train" if together else None
    g = gnlib.GaussNewton(
        module, data.x, data.y, case.loss, output=case.output, mode=mode, optimizer=optimizer, dtype=None
    )
    advice = g.advice(budget=budget)
    found = advice.suggestions
    return Report(
        suggestions=tuple(str(each.what) for each in found),
        module=advice.apply(0).train() if found else None,
        rate=found[0].run.rate if found else None,
        tried=tuple(what for what in {**advice.tried, **advice.runs} if what != "no change"),
        seconds=process_time() - start,
    )


def candidates(case: Case, module: nn.Module, data: Data, tried: list[str]) -> dict[str, nn.Module]:
    """Return the modules of what was tried, by the words of their changes."""
    setting = Setting(copy.deepcopy(module), [arguments_of(data.x)], data.y, case.loss, case.output)
    changes = {change.what: change for change in changes_for(setting)}
    return {what: changed(module, [changes[part] for part in what.split("; ")]).train() for what in tried}
