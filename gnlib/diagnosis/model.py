"""The linear model of a network for a loss and an optimiser, and the course that it takes."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy
import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import SGD, Optimizer

from gnlib.checks import EPS, numerical_rank
from gnlib.diagnosis.curves import Ahead, Curve
from gnlib.diagnosis.descent import Rule, descend
from gnlib.diagnosis.preconditioner import (
    Part,
    Preconditioner,
    displacement,
    kernels_of,
    parts_of,
    preconditioner_of,
    rules_at,
)
from gnlib.eigen.largest import largest_eigenvalue
from gnlib.eigen.result import NotConvergedError
from gnlib.jacobian.network import Factors, Network
from gnlib.jacobian.passes import freeze_all_but, jvp, outputs_of, replace_parameters, vjp
from gnlib.losses import Loss, SquaredError
from gnlib.problem import with_root

DEVIATION = 0.25  # of the residual, by which the network may differ from its linear model
ROUNDING = 1e-8  # of the first residual, below which nothing is compared
FINENESS = 4  # steps at which the network is looked at, in a doubling of their number

Vector: TypeAlias = Float[Tensor, " r"]
Sums: TypeAlias = Float[Tensor, "m c"]


class Space(NamedTuple):
    """Coordinates in which the outputs of a linear model are followed."""

    start: Vector  # where the network stands
    change: Callable[[Sums], Vector]  # by weighted sums of gradients, of parameters and of their momentum
    gradient: Callable[[Vector], Vector]  # of the loss
    value: Callable[[Vector], float]
    outputs: Callable[[Vector], Float[Tensor, "n k"]]
    sums: Callable[[Sums], Sums]  # of samples and outputs, from those in these coordinates


def of_outputs(
    outputs: Float[Tensor, "n k"],
    loss: Loss,
    kernels: Sequence[Float[Tensor, "r r"]],
    pushed: Sequence[Float[Tensor, "r 2"]],
) -> Space:
    r"""Return the coordinates of samples and outputs, in which any loss can be followed.

    They take :math:`K_P` of each part of the parameters, and how the outputs change along the parameters of each part,
    and along its momentum from before.
    """
    matrix = torch.cat([part for pair in zip(kernels, pushed, strict=True) for part in pair], 1)

    def shaped(f: Vector) -> Float[Tensor, "n k"]:
        return f.view(outputs.shape)

    return Space(
        start=outputs.flatten(),
        change=lambda sums: matrix @ sums.flatten(),
        gradient=lambda f: loss.gradient(shaped(f)).flatten(),
        value=lambda f: loss.value(shaped(f)),
        outputs=shaped,
        sums=lambda sums: sums,
    )


def of_modes(
    outputs: Float[Tensor, "n k"],
    loss: Loss,
    values: Vector,
    vectors: Float[Tensor, "r r"],
    pushed: Float[Tensor, "r 2"],
) -> Space:
    """Return the eigenvectors of the kernel, along each of which the squared error falls by itself."""
    targets, along = outputs - loss.gradient(outputs), vectors.mT @ pushed
    return Space(
        start=vectors.mT @ (outputs - targets).flatten(),
        change=lambda sums: values * sums[0, :-2] + along @ sums[0, -2:],
        gradient=lambda f: f,
        value=lambda f: float(f @ f) / (2 * len(outputs)),
        outputs=lambda f: targets + (vectors @ f).view(outputs.shape),
        sums=lambda sums: torch.cat([sums[:, :-2] @ vectors.mT, sums[:, -2:]], 1),
    )


@dataclass(frozen=True, eq=False)
class Linear:
    """The linear model of networks, one for each batch, for an optimiser and a loss."""

    networks: Sequence[Network]
    loss: Loss
    memory: float
    space: Space
    parts: list[Part]
    preconditioner: Preconditioner
    stable_rate: float  # the largest one at which it is stable where it starts, whatever the network does
    unreachable: float  # as in a forecast
    products: int = 0
    estimated: bool = False
    is_stepped: bool = False

    def ahead(self, rate: float, steps: int, is_over: Callable[[], bool]) -> Ahead:
        """Return what it does in so many steps, however long they take."""
        losses, kept = follow(self.space, rules_at(self.parts, rate), steps)
        return Ahead(Curve(*[np.array(losses)] * 3), self.unreachable, trusted(self, kept))


def linearise(
    networks: Sequence[Network],
    loss: Loss,
    optimizer: Optimizer,
    leaves: Mapping[str, Tensor],
    memory: float,
    kernel: Float[Tensor, "nk nk"] | None = None,
) -> Linear:
    """Return the linear model of networks, one for each batch.

    The optimiser has leaves in the place of the parameters; `kernel` is the Gram matrix, where that is known.
    """
    outputs = outputs_of(networks, memory)
    g = loss.gradient(outputs)
    gradient = {} if isinstance(optimizer, SGD) else vjp(networks, memory)(g)
    parts = parts_of(optimizer, networks, leaves)
    preconditioner = preconditioner_of(optimizer, networks, leaves, gradient, memory)
    if kernel is None or len(parts) > 1 or preconditioner.factors is not None or {*parts[0].scales.values()} != {1.0}:
        kernels = kernels_of(parts, networks, preconditioner.factors, memory)
    else:
        kernels = [kernel]
    pushed = [_pushed(part, networks, preconditioner.momentum, outputs, memory) for part in parts]
    if isinstance(loss, SquaredError) and len(parts) == 1:
        values, vectors = torch.linalg.eigh(kernels[0])
        values = values.clamp_min(0)
        space, unreachable = of_modes(outputs, loss, values, vectors, pushed[0]), _within_null_space(g, values, vectors)
        rate = stable_rate([part.rule for part in parts], [values[-1:, None]])
    else:
        space = of_outputs(outputs, loss, kernels, pushed)
        root = loss.root(outputs)
        rate = stable_rate([part.rule for part in parts], [with_root(root, kernel) for kernel in kernels])
        unreachable = _unreachable(g, combined([part.rule._replace(decay=0.0) for part in parts], kernels))
    return Linear(networks, loss, memory, space, parts, preconditioner, rate, unreachable)


def _pushed(
    part: Part, networks: Sequence[Network], momentum: Factors | None, outputs: Float[Tensor, "n k"], memory: float
) -> Float[Tensor, "nk 2"]:
    """Return how the outputs change along the parameters of a part, if they decay, and along their momentum."""
    own = freeze_all_but(networks, part.scales)
    directions: list[Factors | None] = [own[0].parameters if part.rule.decay else None, None]
    if momentum is not None:
        directions[1] = {name: scale * momentum[name] for name, scale in part.scales.items()}
    columns = [outputs if d is None else jvp(own, d, memory) for d in directions]
    return torch.stack([c.flatten() * (d is not None) for c, d in zip(columns, directions, strict=True)], 1)


def stable_rate(rules: Sequence[Rule], kernels: Sequence[Float[Tensor, "q q"]]) -> float:
    """Return the rate of the first rule, all others in proportion, up to which a quadratic is stable."""
    return edge_of_stability(rules, lambda weights: largest_of(weighted(weights, kernels)))


def edge_of_stability(
    rules: Sequence[Rule], largest: Callable[[Sequence[float]], float], tolerance: float = 1e-10
) -> float:
    r"""Return the same, where `largest` returns the largest eigenvalue of a sum of kernels with weights.

    A multiple s of all rates leaves the unit disc at :math:`z = -1`, whatever the momenta, where the largest eigenvalue
    of :math:`\sum_j s \eta_j / (l_j - s \eta_j d_j) K_j` is one, for rules of limits :math:`l_j` and dampings
    :math:`d_j`, that of weight decay.
    """

    def excess(factor: float) -> float:
        return largest(weights_of(rules, factor)) - 1

    first = rules[0].rate
    if len(rules) == 1:
        curvature = largest([1.0]) + rules[0].damping
        return rules[0].limit / curvature if curvature > 0 else math.inf
    undamped = largest(weights_of([rule._replace(decay=0.0) for rule in rules]))
    poles = [rule.limit / (rule.rate * rule.damping) for rule in rules if rule.damping]
    highest = min([1 / undamped if undamped > 0 else math.inf, *((1 - 1e-9) * pole for pole in poles)])
    if not poles or excess(highest) <= 0:
        return highest * first
    return float(scipy.optimize.brentq(excess, 0.0, highest, xtol=tolerance / 100 * highest, rtol=tolerance)) * first


def combined(rules: Sequence[Rule], kernels: Sequence[Float[Tensor, "q q"]]) -> Float[Tensor, "q q"]:
    """Return the sum of kernels, weighted so that its largest eigenvalue is one at the edge of stability."""
    return weighted(weights_of(rules), kernels)


def weights_of(rules: Sequence[Rule], factor: float = 1.0) -> list[float]:
    """Return the weights with which a sum of kernels has a largest eigenvalue of one at the edge of stability."""
    return [factor * rule.rate / (rule.limit - factor * rule.rate * rule.damping) for rule in rules]


def weighted(weights: Sequence[float], kernels: Sequence[Float[Tensor, "q q"]]) -> Float[Tensor, "q q"]:
    """Return the sum of kernels with these weights."""
    if len(kernels) == 1 and weights[0] == 1:
        return kernels[0]
    total = weights[0] * kernels[0]
    for weight, kernel in zip(weights[1:], kernels[1:], strict=True):
        total.add_(kernel, alpha=weight)
    return total


def _unreachable(g: Float[Tensor, "n k"], kernel: Float[Tensor, "nk nk"]) -> float:
    """Return the share of a gradient in the null space of a kernel: none where a Cholesky factor proves full rank."""
    threshold = len(kernel) * EPS * largest_of(kernel)
    shifted = kernel.clone()
    shifted.diagonal().sub_(2 * threshold)  # once for the rounding of the factor
    if threshold > 0 and not torch.linalg.cholesky_ex(shifted).info:
        return 0.0
    return _within_null_space(g, *torch.linalg.eigh(kernel))


def _within_null_space(g: Float[Tensor, "n k"], values: Float[Tensor, " q"], vectors: Float[Tensor, "q q"]) -> float:
    lost = vectors[:, : len(values) - numerical_rank(values, len(values))].mT @ g.flatten()
    return float(lost.square().sum() / g.square().sum()) if g.any() else 0.0


def largest_of(matrix: Float[Tensor, "q q"]) -> float:
    """Return the largest eigenvalue of a positive semi-definite matrix."""
    try:
        return largest_eigenvalue(matrix).value
    except NotConvergedError:
        return max(float(torch.linalg.eigvalsh(matrix)[-1]), 0.0)


def follow(space: Space, rules: Sequence[Rule], steps: int) -> tuple[list[float], dict[int, tuple[Tensor, Tensor]]]:
    """Return the losses of so many steps and, at some of them, sums of gradients and outputs."""
    looks = {round(2 ** (j / FINENESS)) for j in range(math.ceil(FINENESS * math.log2(steps)))} | {steps}
    losses: list[float] = []
    kept: dict[int, tuple[Tensor, Tensor]] = {}
    course = descend(space.start, space.change, space.gradient, rules)
    for step, (sums, outputs) in enumerate(islice(course, steps + 1)):
        losses.append(space.value(outputs))
        if not math.isfinite(losses[-1]):
            return losses[:-1] + [math.inf] * (steps + 1 - step), kept
        if step in looks:
            kept[step] = space.sums(sums), space.outputs(outputs)
    return losses, kept


def trusted(linear: Linear, kept: Mapping[int, tuple[Sums, Float[Tensor, "n k"]]]) -> int:
    """Return the last of the kept steps before the first at which the network deviates from its linear model.

    Its gradients have to be those of the model as well: where a head of zeros moves alone, the outputs are linear.
    """
    networks, loss, memory = linear.networks, linear.loss, linear.memory
    start, product = loss.gradient(outputs_of(networks, memory)), vjp(networks, memory)
    first, steepest, parameters = start.norm(), _flat(product(start)).norm(), networks[0].parameters

    def pull(flat: Vector) -> Factors:
        return product(flat.view(start.shape))

    def on(step: int) -> bool:
        sums, outputs = kept[step]
        back = displacement(linear.parts, linear.preconditioner, parameters, sums, pull)
        there = replace_parameters(networks, {name: p - back[name] for name, p in parameters.items()})
        expected, found = loss.gradient(outputs), loss.gradient(outputs_of(there, memory))
        if (found - expected).norm() > DEVIATION * expected.norm() + ROUNDING * first:
            return False
        flat, real = _flat(product(expected)), _flat(vjp(there, memory)(found))
        return bool((real - flat).norm() <= DEVIATION * flat.norm() + ROUNDING * steepest)

    steps = sorted(kept)
    good, bad = -1, len(steps)
    while good < bad - 1:  # from doubling to doubling, then in between
        look = min(good + FINENESS, bad - 1) if bad == len(steps) else (good + bad) // 2
        good, bad = (look, bad) if on(steps[look]) else (good, look)
    return steps[good] if good >= 0 else 0


def _flat(tensors: Factors) -> Vector:
    return torch.cat([each.flatten() for each in tensors.values()])
