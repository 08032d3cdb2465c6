"""What people use: finders of learning rates, searches for an initialisation, and the usual recipe.

Each is written here from what its authors publish, in few lines; what differs is said beside it.
"""

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.benchmarks.trial.cases import Case, Data
from tests.benchmarks.trial.engineer import normalised, standardised
from tests.benchmarks.trial.training import MAKE

RECIPE_RATE = 1e-3
ITERATIONS = 50  # of GradInit, and of MetaInit, where the papers take hundreds, on batches of large sets


def swept(case: Case, module: nn.Module, data: Data, optimizer: str, low: float, high: float) -> tuple[list, list]:
    """Return rates and smoothed losses of a hundred steps, each at a larger rate, until the loss is fourfold."""
    module, unit = copy.deepcopy(module), case.unit(data.y)
    own = MAKE[optimizer]([p for p in module.parameters() if p.requires_grad], lr=low)
    rates, losses, mean = [], [], 0.0
    for i in range(100):
        rate = low * (high / low) ** (i / 99)
        own.param_groups[0]["lr"] = rate
        own.zero_grad(set_to_none=True)
        loss = case.loss_of(module, data.x, data.y) / unit
        mean = 0.98 * mean + 0.02 * float(loss.detach())
        smooth = mean / (1 - 0.98 ** (i + 1))
        if not math.isfinite(smooth) or (i > 0 and smooth > 4 * min(losses)):
            break
        rates.append(rate)
        losses.append(smooth)
        loss.backward()
        own.step()
    return rates, losses


def lightning_rate(case: Case, module: nn.Module, data: Data, optimizer: str) -> float:
    """Return the rate at which the loss falls most steeply, by the rate, from 1e-8 to 1, as Lightning's tuner does.

    The first ten and the last tests are left out there, and here.
    """
    rates, losses = swept(case, module, data, optimizer, 1e-8, 1.0)
    inner, at = (torch.tensor(each[10:-1], dtype=torch.double) for each in (losses, rates))
    if len(inner) < 2:
        raise ValueError("The loss is fourfold before twelve rates were tested.")
    return rates[10 + int(torch.gradient(inner, spacing=[at])[0].argmin())]


def fastai_rate(case: Case, module: nn.Module, data: Data, optimizer: str) -> float:
    """Return fastai's "valley", from 1e-7 to 10: the middle of the longest subsequence of losses that fall."""
    rates, losses = swept(case, module, data, optimizer, 1e-7, 10.0)
    lengths = [1] * len(losses)
    for i in range(1, len(losses)):
        lengths[i] = max(
            [1, *(lengths[j] + 1 for j in range(i) if losses[i] < losses[j] and lengths[i] < lengths[j] + 1)]
        )
    end = max(range(len(lengths)), key=lengths.__getitem__)
    third = lengths[end] / 3
    return rates[max(end - lengths[end] + int(third) + int(third / 2), 0)]


def usual(case: Case, module: nn.Module, data: Data) -> nn.Module:
    """Return the module with standardised inputs and targets, normalised: the recipe that is run at Adam's 1e-3."""
    return standardised(normalised(module, data.x), case, data.x, data.y)


def metainit(case: Case, module: nn.Module, data: Data) -> nn.Module:
    """Return the module with the norms of its weights as MetaInit (Dauphin and Schoenholz 2019) finds them.

    It lowers the gradient quotient, |H g / g| on average, by signs with momentum. The paper takes 500 steps on noise;
    here are 50 on the data.
    """
    module, unit = copy.deepcopy(module), case.unit(data.y)
    weights = [p for p in module.parameters() if p.requires_grad and p.ndim > 1]
    memory, count = [0.0] * len(weights), sum(p.numel() for p in weights)
    with sdpa_kernel(SDPBackend.MATH):
        for _ in range(ITERATIONS):
            loss = case.loss_of(module, data.x, data.y) / unit
            g = torch.autograd.grad(loss, weights, create_graph=True)
            product = torch.autograd.grad(sum(each.square().sum() / 2 for each in g), weights, create_graph=True)
            quotient = sum(
                ((a - b) / (a + 1e-5 * (2 * (a >= 0).to(a) - 1).detach()) - 1).abs().sum()
                for a, b in zip(g, product, strict=True)
            )
            slopes = torch.autograd.grad(quotient / count, weights)
            for i, (p, slope) in enumerate(zip(weights, slopes, strict=True)):
                norm = float(p.detach().norm())
                if norm > 0:
                    memory[i] = 0.9 * memory[i] - 0.1 * float((slope * p.detach()).sum().sign())
                    p.data.mul_(max((norm + memory[i]) / norm, 1e-2))
    return _finite(module)


def gradinit(case: Case, module: nn.Module, data: Data, optimizer: str) -> nn.Module:
    """Return the module with a factor on each parameter, as GradInit (Zhu and others 2021) learns them.

    The factors lower the loss after one step of the optimiser, by its gradient or the signs of it, as long as the norm
    of the gradient is at most 1; else they lower that norm. The paper's steps come from two batches that overlap; here
    all samples make both losses. Rates are 0.1 for descent and 1e-3 for Adam.
    """
    module, unit, rate = copy.deepcopy(module), case.unit(data.y), 0.1 if optimizer == "sgd" else 1e-3
    fixed = {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}
    factors = {name: torch.ones((), requires_grad=True) for name in fixed}
    own = MAKE["adam"](factors.values(), lr=1e-2)

    def loss_at(parameters: dict[str, Tensor]) -> Tensor:
        def there(*args: Any, **kwargs: Any) -> Any:
            return functional_call(module, parameters, args, kwargs)

        return case.loss_of(there, data.x, data.y) / unit

    with sdpa_kernel(SDPBackend.MATH):
        for _ in range(ITERATIONS):
            own.zero_grad()
            at = {name: factors[name] * p for name, p in fixed.items()}
            g = torch.autograd.grad(loss_at(at), [*at.values()], create_graph=True)
            norm = (
                sum(each.square().sum() for each in g).sqrt() if optimizer == "sgd" else sum(a.abs().sum() for a in g)
            )
            if norm > 1:
                target = norm
            else:
                steps = g if optimizer == "sgd" else [each.sign() for each in g]
                target = loss_at({name: p - rate * s for (name, p), s in zip(at.items(), steps, strict=True)})
            target.backward()
            own.step()
            with torch.no_grad():
                for factor in factors.values():
                    factor.clamp_(min=0.01)
    with torch.no_grad():
        for name, p in module.named_parameters():
            if name in factors:
                p.mul_(factors[name])
    return _finite(module)


def _finite(module: nn.Module) -> nn.Module:
    """Return the module, or complain of what the search has left."""
    if not all(bool(p.isfinite().all()) for p in module.parameters()):
        raise ValueError("The search ends at weights that are not finite.")
    return module
