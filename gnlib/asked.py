"""From the question to the advice: what is measured of each candidate, and what it is trained on."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, cached_property
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from gnlib.advice.candidates import Setting, arguments_of
from gnlib.advice.layers import NORMALISATION
from gnlib.advice.look import Measured
from gnlib.advice.race import advice
from gnlib.advice.runs import Batch, Trainer, loss_on
from gnlib.advice.suggestions import Advice
from gnlib.diagnosis.course import loss_bounds_of, view_of_side
from gnlib.diagnosis.preconditioner import NAMED
from gnlib.diagnosis.rates import StableRate
from gnlib.diagnosis.waits import spread_of
from gnlib.jacobian.inputs import Inputs, read_batches
from gnlib.jacobian.network import Mode
from gnlib.laws.waiting import Waiting, waiting
from gnlib.problem import Problem
from gnlib.products.side import Side
from gnlib.refused import Refused
from gnlib.text import Line

EPOCHS, SAMPLES = 3, 1000  # whose time a report may take, if no budget is given
LEAST, MOST = 5.0, 60.0  # seconds, between which it is
ROWS = 300  # of a matrix, above which a few products order candidates as well, and sooner
PRODUCTS = 40


class Asked(NamedTuple):
    """What a Gauss-Newton matrix was asked of."""

    module: nn.Module
    x: Inputs
    y: Any
    loss: str | Callable[[Tensor, Any], Tensor]
    output: Callable[..., Tensor] | None
    mode: Mode | None
    memory: float
    dtype: torch.dtype | None


class Trials:
    """Real steps of a network that was asked about, and of changed ones."""

    def __init__(self, asked: Asked, optimizer: str | Optimizer | None, held_out: tuple[Inputs, Any] | None) -> None:
        if isinstance(optimizer, str) and optimizer not in NAMED:
            names = ", ".join(map(repr, NAMED))
            raise Refused("wrong-optimizer", f"optimizer is {optimizer!r}; {names} or one of torch was expected.")
        self._asked, self._optimizer = asked, optimizer
        batches, y = read_batches(asked.x, asked.y)
        if y is None:
            raise Refused("no-targets", "y is missing; a change is tried by training, which needs targets.")
        module = copy.deepcopy(asked.module)
        if asked.mode is not None:
            module.train(asked.mode == "train")
        self._setting = Setting(module, [*map(arguments_of, batches)], y, asked.loss, asked.output)
        self._batches = _with_targets(self._setting.batches, y)
        self._held_out: list[Batch] = []
        if held_out is not None:
            others, targets = read_batches(*_pair(held_out))
            self._held_out = _with_targets([*map(arguments_of, others)], targets)

    def trainer(self, optimizer: str | Optimizer | None) -> Trainer:
        """Return what trains with an optimiser."""
        loss, groups = loss_on(self._asked.loss, self._asked.output), _groups(self._asked.module, optimizer)
        return Trainer(self._batches, loss, optimizer, groups, self._held_out)

    @cached_property
    def budget(self) -> float:
        """Seconds of three epochs of 1,000 samples, by the time of one step; at least 5 and at most 60."""
        start = perf_counter()
        self.trainer(None).run(self._setting.module, 1e-3, -math.inf, 0.0, steps=0)
        samples = sum(map(len, self._batches))
        return min(max(EPOCHS * SAMPLES / samples * (perf_counter() - start), LEAST), MOST)

    def advice(self, find: Callable[[Asked], Problem | Side], budget: float | None) -> Advice:
        """Return advice; `find` returns the matrix of a question, or its products with vectors."""
        begun = perf_counter()
        budget = self.budget if budget is None else budget
        if not 0 < budget < math.inf:
            raise Refused("bad-option", f"budget is {budget}; a positive number of seconds was expected.")

        def measure(changed: nn.Module) -> Measured:
            mode: Mode | None = "train" if _learns(changed) else self._asked.mode
            asked = self._asked._replace(module=changed, mode=mode, dtype=dtype)
            return _measured(find(asked), asked.memory)

        dtype = self._precision()
        trainer, remarks = self.trainer(self._optimizer), []
        if isinstance(self._optimizer, Optimizer) and any(self._optimizer.state.values()):
            meaning = "trials begin without it, as a changed network has none"
            remarks.append(Line("optimiser", f"{trainer.name} has a state", meaning))
        try:
            trainer.run(self._setting.module, 1e-3, -math.inf, 0.0, steps=0)
        except (TypeError, ValueError, KeyError) as error:  # of an optimiser that takes more than groups
            trainer = self.trainer(None)
            meaning = f"trials are by gradient descent ({str(error).splitlines()[0]})"
            remarks.append(Line("optimiser", f"{type(self._optimizer).__name__} cannot be made anew", meaning))
        found = advice(self._setting, measure, trainer, budget, begun)
        return replace(found, remarks=(*found.remarks, *remarks))

    def _precision(self) -> torch.dtype | None:
        """Return that of products with vectors, where these are to order the candidates."""
        f, loss = self._setting.outputs, self._asked.loss
        known = loss in ("mse", "cross_entropy") or isinstance(loss, nn.MSELoss | nn.CrossEntropyLoss)
        if not known or not isinstance(f, Tensor) or f[0].numel() * sum(map(len, self._batches)) <= ROWS:
            return self._asked.dtype
        return self._asked.dtype or next(self._setting.module.parameters()).dtype

    def safe_rates(self, rates: Sequence[StableRate]) -> tuple[float | None, ...]:
        """Return for each the first of half of it, a quarter and so on at which ten real steps do not explode.

        The rates are those of gradient descent, with momentum, and of the optimiser.
        """
        seconds, optimizers = self.budget / len(rates), (None, "momentum", self._optimizer)
        pairs = zip(rates, optimizers, strict=False)
        return tuple(self.trainer(o).safe_rate(self._setting.module, rate.rate / 2, seconds) for rate, o in pairs)


def _pair(held_out: Any) -> tuple[Inputs, Any]:
    if not isinstance(held_out, tuple | list) or len(held_out) != 2 or held_out[1] is None:
        raise Refused("bad-option", "held_out is no pair; inputs and targets were expected, as in held_out=(x, y).")
    return held_out[0], held_out[1]


def _learns(module: nn.Module) -> bool:
    """Whether batch normalisations were added, which take the statistics of the batch."""
    return any(isinstance(m, _BatchNorm) and name.endswith(NORMALISATION) for name, m in module.named_modules())


def _measured(found: Problem | Side, memory: float) -> Measured:
    if isinstance(found, Side):
        bounds = loss_bounds_of(view_of_side(found, memory), products=PRODUCTS)
        return Measured(found.loss, 2 / bounds.largest, cache(bounds.waiting))
    largest = float(found.eigenvalues[-1])
    try:
        values, shares, _ = spread_of(found)
    except ValueError:  # a loss without a quadratic model
        values, shares = torch.zeros(1), torch.ones(1)

    def find(share: float) -> Waiting:
        return waiting(values, shares, 1 / largest, share)

    return Measured(found.loss.value(found.outputs), 2 / largest, find)


def _with_targets(batches: list[dict[int | str, Any]], y: Any) -> list[Batch]:
    """Return the batches with the targets of each."""
    if isinstance(y, Tensor):
        targets = [*y.split([len(next(iter(batch.values()))) for batch in batches])]
    else:
        targets = [y] if len(batches) == 1 else [*y]
    return [Batch(*each) for each in zip(batches, targets, strict=True)]


def _groups(module: nn.Module, optimizer: str | Optimizer | None) -> dict[str, int]:
    """Return the place of each parameter among the groups of an optimiser, -1 for those that it does not move."""
    if not isinstance(optimizer, Optimizer):
        return {}
    places = {id(p): i for i, group in enumerate(optimizer.param_groups) for p in group["params"]}
    return {name: places.get(id(p), -1) for name, p in module.named_parameters()}
