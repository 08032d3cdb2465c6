"""The optimisers of torch, as a rule for all parameters and a factor for each of them."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

from gnlib.diagnosis.descent import Rule
from gnlib.jacobian.columns import add_columns, mirror
from gnlib.jacobian.gram import blocks_of, gram_of
from gnlib.jacobian.network import GIB, Factors, Network, count_rows
from gnlib.jacobian.passes import freeze_all_but
from gnlib.jacobian.plan import BudgetError
from gnlib.products.passes import Passes
from gnlib.refused import Refused

FLOOR = 1e-3  # of the root mean square of the diagonal's root: parameters that hardly matter would move the most
NAMED: dict[str, Callable[..., Optimizer]] = {
    "sgd": SGD,
    "momentum": lambda leaves, lr: SGD(leaves, lr=lr, momentum=0.9),
    "adam": Adam,
}
Parametrised: TypeAlias = Network | Passes


class NotFollowedError(TypeError):
    """An optimiser takes steps that no linear model here follows."""

    code = "wrong-optimizer"


class Preconditioner(NamedTuple):
    r"""The factors :math:`P^{-1}` that an optimiser has for each entry of the parameters, and the momentum it has."""

    factors: Factors | None = None  # None where all are one
    momentum: Factors | None = None  # where the momentum from before takes the parameters; None if there is none


class Part(NamedTuple):
    """Parameters that share a rule, and the multiple of its rate that each of them has, by name."""

    rule: Rule
    scales: dict[str, float]


def optimizer_of(
    optimizer: str | Optimizer, network: Parametrised, leaves: Mapping[str, Tensor], rate: float
) -> Optimizer:
    """Return an optimiser of leaves in the place of the parameters of a network; a copy, if it has a state.

    The first of its groups that moves has this rate, the others theirs in proportion.
    """
    if isinstance(optimizer, str):
        if optimizer not in NAMED:
            raise Refused(
                "wrong-optimizer",
                f"optimizer is {optimizer!r}; {', '.join(map(repr, NAMED))} or one of torch was expected.",
            )
        return NAMED[optimizer]([leaves[name] for name in network.parameters], lr=rate)
    if not isinstance(optimizer, Optimizer):
        raise TypeError(
            f"optimizer is of type {type(optimizer).__name__}; SGD, Adam, AdamW or RMSprop of torch.optim, or one of "
            f"{', '.join(map(repr, NAMED))}, was expected."
        )
    check_followed(optimizer)
    names = {id(p): name for name, p in network.module.named_parameters()}
    groups, first = [], rate_of(optimizer) or 1.0
    for group in optimizer.param_groups:
        if any(id(p) not in names for p in group["params"]):
            raise Refused(
                "wrong-optimizer", "optimizer has parameters that module has not; make it of module.parameters()."
            )
        groups.append({**group, "params": [leaves[names[id(p)]] for p in group["params"]]})
    rates = [own * rate / first for own in _rates(optimizer)] if rate_of(optimizer) else [rate] * len(groups)
    kind: Callable[..., Optimizer] = type(optimizer)
    made = kind(groups)
    made.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for group, own in zip(made.param_groups, rates, strict=True):
        group["lr"] = own
    return made


def check_followed(optimizer: Optimizer) -> None:
    """Refuse an optimiser whose steps, with its factors held, are no linear function of the gradients."""
    kind = type(optimizer)
    if kind not in (SGD, Adam, AdamW, RMSprop):
        raise NotFollowedError(
            f"optimizer is of type {kind.__name__}; SGD, Adam, AdamW and RMSprop of torch.optim are followed, and for "
            "any other take one of these, or gradient descent, in its place."
        )
    if any(group.get("maximize") for group in optimizer.param_groups):
        raise NotFollowedError("optimizer has maximize=True; pass one that goes down, of the loss with its sign.")


def rate_of(optimizer: Optimizer) -> float:
    """Return the learning rate of the first group that moves; 0 if none does, nor will at the end of a warm-up."""
    return next((rate for rate in _rates(optimizer) if rate), 0.0)


def _rates(optimizer: Optimizer) -> list[float]:
    """Return the rates of the groups; those that a scheduler begins with, where it holds all of them at 0 now."""
    now = [float(group["lr"]) for group in optimizer.param_groups]
    return now if any(now) else [float(group.get("initial_lr", 0.0)) for group in optimizer.param_groups]


def left_out(optimizer: Optimizer) -> list[str]:
    """Return the settings of an optimiser that its linear model leaves out, or holds where they are."""
    groups, adaptive = optimizer.param_groups, not isinstance(optimizer, SGD)
    settings = []
    if adaptive and any(group["weight_decay"] and not _is_decoupled(optimizer, group) for group in groups):
        settings.append("the weight decay, which comes to gradients before they are divided")
    if any(group.get("centered") for group in groups) and not any(optimizer.state.values()):
        settings.append("that it is centred")
    if any("initial_lr" in group for group in groups):
        settings.append("the scheduler: the rate is held")
    return settings


def name_of(optimizer: str | Optimizer) -> str:
    """Return the name of an optimiser."""
    return optimizer if isinstance(optimizer, str) else type(optimizer).__name__


def moving(optimizer: Optimizer, parameters: Iterable[str], leaves: Mapping[str, Tensor]) -> set[str]:
    """Return the names of those parameters whose leaves the optimiser moves."""
    held = {id(leaf) for group in optimizer.param_groups if group["lr"] for leaf in group["params"]}
    return {name for name in parameters if id(leaves[name]) in held}


def moved_by(optimizer: Optimizer, networks: Sequence[Network], leaves: Mapping[str, Tensor]) -> Sequence[Network]:
    """Return networks differentiated by those parameters alone whose leaves the optimiser moves."""
    names = moving(optimizer, networks[0].parameters, leaves)
    return networks if len(names) == len(networks[0].parameters) else freeze_all_but(networks, names)


def rule_of(optimizer: Optimizer) -> Rule:
    """Return the rule of an optimiser for its first group that moves, with the rate that it has."""
    groups = optimizer.param_groups
    return _rule(optimizer, next((group for group in groups if group["lr"]), groups[0]))


def parts_of(optimizer: Optimizer, networks: Sequence[Parametrised], leaves: Mapping[str, Tensor]) -> list[Part]:
    """Return the parameters of networks by the rules that an optimiser has for them, that of the first group first.

    Groups that differ in nothing but the rate share a rule, unless weights decay: then the rate matters twice.
    """
    names = {id(leaves[name]): name for name in networks[0].parameters}
    parts: dict[Rule, Part] = {}
    for group in optimizer.param_groups:
        if own := [names[id(leaf)] for leaf in group["params"] if id(leaf) in names and group["lr"]]:
            rule = _rule(optimizer, group)
            part = parts.setdefault(rule if rule.decay else rule._replace(rate=1.0), Part(rule, {}))
            part.scales.update(dict.fromkeys(own, rule.rate / part.rule.rate))
    return [*parts.values()]


def rules_at(parts: Sequence[Part], rate: float) -> list[Rule]:
    """Return the rules of parts, the first of which has this rate."""
    return [rule._replace(rate=rate / parts[0].rule.rate * rule.rate) for rule, _ in parts]


def _rule(optimizer: Optimizer, group: Mapping[str, Any]) -> Rule:
    states = [optimizer.state[leaf] for leaf in group["params"] if leaf in optimizer.state]
    rate, decay = float(group["lr"]), float(group["weight_decay"])
    if isinstance(optimizer, Adam):
        decoupled = _is_decoupled(optimizer, group)
        taken = max((int(state["step"]) for state in states if state), default=0)
        decay = decay if decoupled else 0.0
        return Rule(rate, group["betas"][0], averaged=True, taken=taken, decay=decay, decoupled=decoupled and decay > 0)
    if isinstance(optimizer, RMSprop):
        return Rule(rate, group["momentum"])
    taken = int(any(state.get("momentum_buffer") is not None for state in states))
    dampening = float(group["dampening"]) if group["momentum"] else 0.0
    return Rule(rate, group["momentum"], False, bool(group["nesterov"]), taken, dampening, decay)


def _is_decoupled(optimizer: Optimizer, group: Mapping[str, Any]) -> bool:
    return bool(group.get("decoupled_weight_decay", isinstance(optimizer, AdamW)))


def preconditioner_of(
    optimizer: Optimizer, networks: Sequence[Network], leaves: Mapping[str, Tensor], gradient: Factors, memory: float
) -> Preconditioner:
    r"""Return the preconditioner of an optimiser: that of its state, or one in its place.

    Without a state, Adam and RMSprop have the root of the diagonal of the Gauss-Newton matrix, to which their mean of
    squared gradients is proportional where residuals are independent and of one size; not less than 1e-3 of its root
    mean square, and scaled to the size of the gradient.
    """
    parameters = networks[0].parameters
    return preconditioner_from(optimizer, parameters, leaves, lambda: _from_diagonal(networks, gradient, memory))


def preconditioner_from(
    optimizer: Optimizer, parameters: Factors, leaves: Mapping[str, Tensor], fresh: Callable[[], Factors]
) -> Preconditioner:
    """Return the preconditioner of an optimiser's state, or of what `fresh` returns if it has none and is adaptive."""
    names = {id(leaf): name for name, leaf in leaves.items()}
    groups = {names[id(leaf)]: group for group in optimizer.param_groups for leaf in group["params"]}
    states = {names[id(leaf)]: state for leaf, state in optimizer.state.items() if state}
    adaptive = isinstance(optimizer, Adam | RMSprop)
    if not states:
        if not adaptive:
            return Preconditioner()
        return Preconditioner({name: 1 / (1 / factor + groups[name]["eps"]) for name, factor in fresh().items()})
    factors, momentum = {}, {}
    for name, p in parameters.items():  # one without a state never had a gradient
        state = states.get(name, {})
        factors[name] = _factor(state, groups[name]) if adaptive and state else torch.ones_like(p)
        buffer = state.get("exp_avg", state.get("momentum_buffer"))
        momentum[name] = torch.zeros_like(p) if buffer is None else buffer.detach()
        if "exp_avg" in state:
            momentum[name] = momentum[name] * factors[name]
    moving = any(_momentum(groups[name]) and m.any() for name, m in momentum.items())
    return Preconditioner(factors if adaptive else None, momentum if moving else None)


def displacement(
    parts: Sequence[Part],
    preconditioner: Preconditioner,
    parameters: Factors,
    sums: Float[Tensor, "m c"],
    pull: Callable[[Float[Tensor, " r"]], Factors],
) -> Factors:
    r"""Return how far back sums of gradients take parameters: :math:`a \theta_0 + \frac1n P^{-1} J^\top c + b M_0`."""
    factors, momentum = preconditioner
    moved = {}
    for (_, scales), own in zip(parts, sums, strict=True):
        pulled = pull(own[:-2])
        for name, scale in scales.items():
            step = pulled[name] if factors is None else pulled[name] * factors[name]
            if momentum is not None:
                step = step + own[-1] * momentum[name]
            moved[name] = scale * step + own[-2] * parameters[name] if own[-2] else scale * step
    return moved


def kernels_of(
    parts: Sequence[Part], networks: Sequence[Network], factors: Factors | None, memory: float
) -> list[Float[Tensor, "nk nk"]]:
    r"""Return :math:`\frac1n J P^{-1} J^\top` of each part of the parameters, with the multiples of its rate in P."""
    held = 8 * count_rows(networks) ** 2 * len(parts) / GIB  # beside the matrix that is made: others, and their sum

    def kernel_of(part: Part) -> Float[Tensor, "nk nk"]:
        room = max(memory - held, 1e-9)
        if factors is not None:
            own = {name: factors[name] * scale for name, scale in part.scales.items()}
            return preconditioned_gram(freeze_all_but(networks, own), own, room)
        by_scale: dict[float, list[str]] = {}
        for name, scale in part.scales.items():
            by_scale.setdefault(scale, []).append(name)
        grams = (gram_of(freeze_all_but(networks, own), room).mul_(scale) for scale, own in by_scale.items())
        return reduce(Tensor.add_, grams)

    try:
        return [kernel_of(part) for part in parts]
    except BudgetError as error:
        needed = held + error.needed
        raise BudgetError(
            f"memory is {memory} GiB but {needed:.3f} are needed for the matrices of an optimiser that has "
            f"{len(parts)} kinds of groups; allow more, or pass fewer samples.",
            needed,
        ) from error


def preconditioned_gram(networks: Sequence[Network], factors: Factors, memory: float) -> Float[Tensor, "nk nk"]:
    r"""Return :math:`\frac1n J P^{-1} J^\top` for a diagonal P.

    With factors :math:`P^{-1}` for each parameter no product of two Gram matrices gives a layer's part, so all columns
    of the Jacobian are formed, some at a time: :math:`p (nk)^2` operations, where the structured Gram matrix may take
    fewer by a factor of the width.
    """
    size = count_rows(networks)
    gram = torch.zeros(size, size, dtype=torch.float64, device=networks[0].x.device)
    roots = torch.cat([factors[name].flatten() for name in reversed(networks[0].parameters)]).sqrt()
    for block in _blocks(networks, memory):
        part, roots = roots[: block.shape[1]], roots[block.shape[1] :]
        add_columns(gram, block.mul_(part))
    return mirror(gram).div_(sum(len(network.x) for network in networks))


def _from_diagonal(networks: Sequence[Network], gradient: Factors, memory: float) -> Factors:
    parameters = networks[0].parameters
    squares = torch.cat([block.square().sum(0) for block in _blocks(networks, memory)])
    size = torch.cat([g.flatten() for g in gradient.values()]).norm()
    parts = usual_factors(squares, size).split([p.numel() for p in reversed(parameters.values())])
    factors = dict(zip(reversed(parameters), parts, strict=True))
    return {name: factors[name].view_as(p) for name, p in parameters.items()}


def usual_factors(squares: Float[Tensor, " p"], size: Tensor) -> Float[Tensor, " p"]:
    """Return the factors of a diagonal, for a gradient of this size."""
    roots = squares.clamp_min(FLOOR**2 * squares.mean()).sqrt()
    return roots.norm() / (size or squares.new_ones(())) / roots  # of size zero is that of a perfect fit


def _blocks(networks: Sequence[Network], memory: float) -> Iterator[Float[Tensor, "nk g"]]:
    return blocks_of(networks, max(memory - 16 * count_rows(networks) ** 2 / GIB, 1e-9))


def _factor(state: Mapping[str, Any], group: Mapping[str, Any]) -> Tensor:
    if "square_avg" in state:
        squares = state["square_avg"] - (state["grad_avg"].square() if "grad_avg" in state else 0)
        return 1 / (squares.sqrt() + group["eps"])
    squares = state.get("max_exp_avg_sq", state["exp_avg_sq"]) / (1 - group["betas"][1] ** int(state["step"]))
    return 1 / (squares.sqrt() + group["eps"])


def _momentum(group: Mapping[str, Any]) -> float:
    return float(group["betas"][0] if "betas" in group else group["momentum"])
