"""Parameters near the given ones, where nothing is hidden by zeros."""

import math
from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from gnlib.jacobian.network import Factors

STEPS = 0.01, 0.1  # relative sizes of the perturbations
SHORTER = 1.0, 0.1, 0.01, 1e-3, 1e-4, 0.0  # parts of them that are tried until the parameters are in their domain
PERIOD = 65537  # after which the noise of large weights repeats: drawing takes ten times as long as using it


@runtime_checkable
class HasOutputs(Protocol):
    """The result of a call."""

    @property
    def outputs(self) -> Tensor:
        """What has to be finite."""


Found = TypeVar("Found", bound=HasOutputs)


def move(parameters: Factors, given: Factors, step: float, pull: Callable[[], Found]) -> Found:
    """Perturb copies of the given entries and return the result of a call there.

    The perturbation is `step`, or as much less as keeps the parameters in their domain, where a call does not fail and
    its outputs are finite: a covariance is positive definite, a probability at most one.
    """
    for part in SHORTER:
        perturb(parameters, given, part * step)
        try:
            found = pull()
        except Exception:  # of many types
            if part:
                continue
            raise
        if not part or torch.isfinite(found.outputs).all():
            break
    return found


def perturb(parameters: Factors, given: Factors, step: float) -> None:
    """Perturb copies of the given entries by Gaussian noise of `step` times their size.

    Zeros get noise of `step` times the root mean square of their tensor, since a zero weight hides all that lies
    behind it.
    """
    generator = torch.Generator().manual_seed(0)
    for name, p in given.items():
        if not step:
            parameters[name].copy_(p)
            continue
        noise = torch.randn(min(p.numel(), PERIOD), generator=generator, dtype=p.dtype, device=generator.device)
        noise = noise.mul_(step).to(p.device)
        size = torch.linalg.vector_norm(p).item() / math.sqrt(p.numel()) or 1.0
        for entries, own in zip(parameters[name].view(-1).split(PERIOD), p.flatten().split(PERIOD), strict=True):
            sizes = own if own.all() else torch.where(own == 0, size, own)
            torch.addcmul(own, sizes, noise[: len(own)], out=entries)
