"""From the question to the advice: what is measured of each candidate, and what it is trained on."""

import copy
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from gnlib.advice.advice import Advice, Measured, advice_on
from gnlib.advice.candidates import Setting, arguments_of
from gnlib.advice.layers import NORMALISATION
from gnlib.advice.runs import Trainer, loss_on
from gnlib.diagnosis.course import loss_bounds_of
from gnlib.diagnosis.view import view_of_side
from gnlib.diagnosis.waits import spread_of
from gnlib.jacobian.inputs import Inputs, read_batches
from gnlib.jacobian.network import Mode
from gnlib.laws.waiting import Waiting, waiting
from gnlib.problem import Problem
from gnlib.products.side import Side
from gnlib.refused import Refused


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


def advice_of(
    asked: Asked, optimizer: str | Optimizer | None, find: Callable[[Asked], Problem | Side], budget: float
) -> Advice:
    """Return advice; `find` returns the matrix of a question, or its products with vectors."""
    if not 0 < budget < math.inf:
        raise Refused("bad-option", f"budget is {budget}; a positive number of seconds was expected.")
    batches, y = read_batches(asked.x, asked.y)
    if y is None:
        raise Refused("no-targets", "y is missing; a change is tried by training, which needs targets.")
    module = copy.deepcopy(asked.module)
    if asked.mode is not None:
        module.train(asked.mode == "train")
    setting = Setting(module, [*map(arguments_of, batches)], y, asked.loss, asked.output)

    def measure(changed: nn.Module) -> Measured:
        mode: Mode | None = "train" if _learns(changed) else asked.mode
        return _measured(find(asked._replace(module=changed, mode=mode)), asked.memory)

    trainer = Trainer(
        batches=[*zip(setting.batches, _targets_of(setting), strict=True)],
        loss=loss_on(asked.loss, asked.output),
        optimizer=optimizer,
        groups=_groups(asked.module, optimizer),
    )
    return advice_on(setting, measure, trainer, budget)


def _learns(module: nn.Module) -> bool:
    """Whether batch normalisations were added, which take the statistics of the batch."""
    return any(isinstance(m, _BatchNorm) and name.endswith(NORMALISATION) for name, m in module.named_modules())


def _measured(found: Problem | Side, memory: float) -> Measured:
    if isinstance(found, Side):
        bounds = loss_bounds_of(view_of_side(found, memory))
        return Measured(found.loss, 2 / bounds.largest, bounds.waiting)
    largest = float(found.eigenvalues[-1])
    try:
        values, shares, _ = spread_of(found)
    except ValueError:  # a loss without a quadratic model
        values, shares = torch.zeros(1), torch.ones(1)

    def find(share: float) -> Waiting:
        return waiting(values, shares, 1 / largest, share)

    return Measured(found.loss.value(found.outputs), 2 / largest, find)


def _targets_of(setting: Setting) -> list[Any]:
    """Return the targets of each batch."""
    if not isinstance(setting.y, Tensor):
        return [setting.y] if len(setting.batches) == 1 else [*setting.y]
    return [*setting.y.split([len(next(iter(batch.values()))) for batch in setting.batches])]


def _groups(module: nn.Module, optimizer: str | Optimizer | None) -> dict[str, int]:
    """Return the place of each parameter among the groups of an optimiser."""
    if not isinstance(optimizer, Optimizer):
        return {}
    places = {id(p): i for i, group in enumerate(optimizer.param_groups) for p in group["params"]}
    return {name: places[id(p)] for name, p in module.named_parameters() if id(p) in places}
