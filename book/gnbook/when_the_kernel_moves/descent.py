r"""Gradient descent whose steps the tangent kernel chooses, and which watches the kernel as it goes.

The loss of a network curves no more along its gradient than :math:`\lambda_{\max}(B K)`, to first order: K is the
tangent kernel, B the Gauss-Newton matrix of the loss by the outputs. Descent is stable up to twice the inverse of that.
As the residuals of a cross entropy fall, so does B, and steps can grow.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.when_the_kernel_moves.heads import Head, output_kernel
from gnbook.when_the_kernel_moves.networks import StackedNetworks
from gnlib.files import progress

GROWTH = 1.1  # ratio of the numbers of steps at two looks at the kernel, when there are many
POWER = 30  # products of the power iteration: a few per cent, where stability leaves a factor of two
TRUST = 1.0  # how far an output may move in a step: a cross entropy changes its curvature by a factor of e
STALL = 1e-3  # a loss that fell by less than this share, while the number of steps doubled, has stopped falling
FEWEST = 100  # steps before a loss can be said to have stopped falling


@dataclass
class Descent:
    """Course and end of the descent of one network."""

    # below the goal; no longer falling; not finite; or still falling
    status: Literal["reached", "stalled", "diverged", "out of steps"] = "out of steps"
    # for each look at the kernel step, time (sum of the rates so far), loss, rate, change and output_change (of the
    # kernels of f and of the output since the start, relative, in the Frobenius norm), and the columns of `measure`;
    # the last one is that of the end
    rows: list[dict[str, int | float]] = field(default_factory=list)

    def largest(self, name: str) -> float:
        """Return the largest value of a column over all looks."""
        return max(row[name] for row in self.rows)


class Rate(NamedTuple):
    r"""Radius of the ball that Theorem 5.1 asks for, and the rate of convergence that it gives."""

    radius: float  # of a ball around the initial weights that descent does not leave
    rate: float  # mu rho^2: the loss falls by a factor of 1 - eta mu rho^2 a step

    def steps(self, step_size: float, factor: float) -> float:
        """Return the number of steps in which the loss is sure to fall by a factor."""
        return math.log(factor) / -math.log1p(-step_size * self.rate)


def liu_theorem_5_1(kernel: Float[Tensor, "n n"], residual: Float[Tensor, " n"], slope: float) -> Rate:
    r"""Return rate and radius of descent on :math:`\frac12 \sum_i (\phi(f_i) - y_i)^2` (Liu 2020, Theorem 5.1).

    If :math:`\lambda_{\min}(K) \ge \mu` in the ball of this radius, :math:`2 \|r_0\| / (\rho \sqrt\mu)` with the first
    residuals :math:`r_0`, and the step size is at most the inverse of the largest curvature of the loss in it, then
    descent stays in the ball and converges at this rate (see the claims). Half the smallest eigenvalue of the kernel
    given serves as :math:`\mu`; whether it bounds K in the ball is for the width to see to. The slope is :math:`\rho`,
    a positive lower bound on :math:`|\phi'|`.
    """
    mu = torch.linalg.eigvalsh(kernel)[0].item() / 2
    return Rate(2 * torch.linalg.vector_norm(residual).item() / (slope * math.sqrt(mu)), mu * slope**2)


def descend(
    networks: StackedNetworks,
    x: Float[Tensor, "runs n d"],
    targets: Float[Tensor, "runs n k"],
    head: Head,
    *,
    most_steps: int,
    goal: float = 1e-4,
    measure: Callable[[int, Tensor, Tensor], Mapping[str, int | float]] | None = None,
) -> list[Descent]:
    r"""Train networks by gradient descent on all samples until their loss is below a goal or stops falling.

    The kernels are looked at before the first step, at the end, and at numbers of steps that grow like 1.1^j. The rate
    from one look to the next is :math:`1 / \lambda_{\max}(B K)`, or less: to first order no output moves by more than
    one in a step. Networks that are done are set aside. `measure` is given the number of a run and its kernels, of f
    and of the output; what it returns joins the row.
    """
    group = _Group(networks, x, targets, head)
    due = 0
    for step in progress(range(most_steps + 1), "Descent", most_steps + 1):
        looked = torch.full_like(group.losses, step >= due or step == most_steps, dtype=torch.bool)
        looked |= ~(group.losses >= goal)
        if looked.any():
            due = max(step + 1, math.ceil(GROWTH * step)) if step >= due else due
            group.look(looked, step, goal, measure)
            if not group.alive or step == most_steps:
                break
        group.step()
        group.evaluate()
    group.write_back()
    return group.results


class _Group:
    """The networks that are still being trained."""

    def __init__(self, networks: StackedNetworks, x: Tensor, targets: Tensor, head: Head) -> None:
        self.networks, self.head = networks, head
        self.results = [Descent() for _ in range(len(networks))]
        self.alive = list(range(len(networks)))
        self.active, self.x, self.targets = networks.only(self.alive), x, targets
        self.rates = self.times = x.new_zeros(len(x))
        self.starts: tuple[Tensor, Tensor] | None = None
        self.evaluate()

    def evaluate(self) -> None:
        """Compute outputs before the head, losses, and their derivatives by these outputs."""
        with torch.no_grad():
            self.passes = self.active.passes(self.x)
        f = self.passes.outputs.requires_grad_()
        losses = self.head.loss(f, self.targets)
        (self.slopes,) = torch.autograd.grad(losses.sum(), f)
        self.losses = losses.detach()

    def step(self) -> None:
        """Go one step down."""
        self.active.step(self.passes, self.slopes, self.rates)
        self.times = self.times + self.rates

    def look(self, looked: Tensor, step: int, goal: float, measure: Callable | None) -> None:
        """Measure the kernels of some networks, choose rates, and set finished runs aside."""
        kernel, f = self.active.kernel(self.x), self.passes.outputs.detach()
        kernels = kernel, output_kernel(kernel, self.head.slopes(f))
        self.starts = self.starts or kernels
        self.rates = torch.where(looked, _rates(kernel, self.head.curvature(f), self.slopes), self.rates)
        changes = [_change(before, after) for before, after in zip(self.starts, kernels, strict=True)]
        columns = self.times, self.losses, self.rates, *changes
        for index in looked.nonzero()[:, 0].tolist():
            run = self.alive[index]
            values = (column[index].item() for column in columns)
            row = {"step": step} | dict(zip(("time", "loss", "rate", "change", "output_change"), values, strict=True))
            if measure and math.isfinite(row["loss"]):
                row |= measure(run, *(matrix[index] for matrix in kernels))
            self.results[run].rows.append(row)
            self.results[run].status = _status(self.results[run].rows, goal)
        kept = [index for index, run in enumerate(self.alive) if self.results[run].status == "out of steps"]
        if len(kept) == len(self.alive):
            return
        self.write_back()
        self.alive = [self.alive[index] for index in kept]
        if not kept:
            return
        self.active = self.active.only(kept)
        self.x, self.targets, self.rates, self.times = (t[kept] for t in (self.x, self.targets, self.rates, self.times))
        self.starts = tuple(start[kept] for start in self.starts)
        self.evaluate()

    @torch.no_grad()
    def write_back(self) -> None:
        """Give the networks their weights."""
        if self.alive:
            for w, moved in zip(self.networks.weights, self.active.weights, strict=True):
                w[self.alive] = moved


def _rates(
    kernel: Float[Tensor, "runs nk nk"], curvature: Float[Tensor, "runs n k k"], slope: Float[Tensor, "runs n k"]
) -> Float[Tensor, " runs"]:
    """Return the inverse of the largest eigenvalue of B K, or the rate that moves an output by one, if that is less."""
    tiny = torch.finfo(kernel.dtype).tiny
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(1, len(kernel[0]), 1, generator=generator, dtype=kernel.dtype, device=generator.device)
    v = v.to(kernel.device).expand(len(kernel), -1, -1)
    for _ in range(POWER):  # B K has the eigenvalues of a positive semi-definite matrix
        v = v / torch.linalg.vector_norm(v, dim=1, keepdim=True).clamp_min(tiny)
        v = (curvature @ (kernel @ v).view(*slope.shape, 1)).reshape(v.shape)
    largest = torch.linalg.vector_norm(v, dim=(1, 2))
    move = (kernel @ slope.flatten(1)[..., None]).abs().amax((1, 2)) / TRUST
    return 1 / torch.maximum(largest, move).clamp_min(tiny)


def _change(before: Float[Tensor, "runs nk nk"], after: Float[Tensor, "runs nk nk"]) -> Float[Tensor, " runs"]:
    """Return relative changes, as `kernel_change` does, but zero for a kernel that is and remains zero."""
    size = torch.linalg.matrix_norm(before).clamp_min(torch.finfo(before.dtype).tiny)
    return torch.linalg.matrix_norm(after - before) / size


def _status(rows: list[dict[str, int | float]], goal: float) -> str:
    step, loss = rows[-1]["step"], rows[-1]["loss"]
    if not math.isfinite(loss):
        return "diverged"
    if loss < goal:
        return "reached"
    earlier = [row["loss"] for row in rows if row["step"] <= step / 2]
    if step >= FEWEST and loss > (1 - STALL) * earlier[-1]:
        return "stalled"
    return "out of steps"
