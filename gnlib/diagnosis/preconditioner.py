"""The optimisers of torch, as a rule for all parameters and a factor for each of them."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

from gnlib.diagnosis.descent import Rule
from gnlib.jacobian.gram import add_columns, blocks_of, gram_of, mirror
from gnlib.jacobian.network import GIB, Factors, Network, count_rows
from gnlib.jacobian.passes import freeze_all_but

FLOOR = 1e-3  # of the root mean square of the diagonal's root: parameters that hardly matter would move the most
NAMED: dict[str, Callable[..., Optimizer]] = {
    "sgd": SGD,
    "momentum": lambda leaves, lr: SGD(leaves, lr=lr, momentum=0.9),
    "adam": Adam,
}
LEFT_OUT = ("weight_decay", "dampening", "maximize", "centered")  # AdamW's decay is not part of its gradients


class Preconditioner(NamedTuple):
    r"""The factors :math:`P^{-1}` that an optimiser has for each entry of the parameters, and the momentum it has.

    Attributes
    ----------
    factors
        by name of the parameter; None where all are one
    momentum
        where the momentum that it has from before takes the parameters, by name; None if it has none
    """

    factors: Factors | None = None
    momentum: Factors | None = None


def optimizer_of(optimizer: str | Optimizer, network: Network, leaves: Mapping[str, Tensor], rate: float) -> Optimizer:
    """Return an optimiser of leaves in the place of the parameters of a network; a copy, if it has a state."""
    if isinstance(optimizer, str):
        if optimizer not in NAMED:
            raise ValueError(f"optimizer is {optimizer!r}; {', '.join(map(repr, NAMED))} or one of torch was expected.")
        return NAMED[optimizer]([leaves[name] for name in network.parameters], lr=rate)
    if type(optimizer) not in (SGD, Adam, AdamW, RMSprop):
        raise TypeError(
            f"optimizer is of type {type(optimizer).__name__}; SGD, Adam, AdamW or RMSprop of torch.optim, or one of "
            f"{', '.join(map(repr, NAMED))}, was expected."
        )
    names = {id(p): name for name, p in network.module.named_parameters()}
    groups = []
    for group in optimizer.param_groups:
        for setting in LEFT_OUT:
            if group.get(setting) and not (setting == "weight_decay" and isinstance(optimizer, AdamW)):
                raise ValueError(
                    f"optimizer has {setting}={group[setting]}, which a forecast leaves out; pass one without it."
                )
        if group["lr"] != (first := optimizer.param_groups[0])["lr"] or _betas(group) != _betas(first):
            raise ValueError("optimizer has groups of several rates or momenta; pass one with the same for all.")
        if any(id(p) not in names for p in group["params"]):
            raise ValueError("optimizer has parameters that module has not; make it of module.parameters().")
        groups.append({**group, "params": [leaves[names[id(p)]] for p in group["params"]]})
    kind: Callable[..., Optimizer] = type(optimizer)
    made = kind(groups)
    made.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for group in made.param_groups:
        group["lr"] = rate
    return made


def name_of(optimizer: str | Optimizer) -> str:
    """Return the name of an optimiser."""
    return optimizer if isinstance(optimizer, str) else type(optimizer).__name__


def moved_by(optimizer: Optimizer, networks: Sequence[Network], leaves: Mapping[str, Tensor]) -> Sequence[Network]:
    """Return networks differentiated by those parameters alone whose leaves the optimiser moves."""
    held = {id(leaf) for group in optimizer.param_groups for leaf in group["params"]}
    moving = {name for name in networks[0].parameters if id(leaves[name]) in held}
    return networks if len(moving) == len(networks[0].parameters) else freeze_all_but(networks, moving)


def rule_of(optimizer: Optimizer) -> Rule:
    """Return the rule of an optimiser, with the rate that it has."""
    group = optimizer.param_groups[0]
    rate, momentum = float(group["lr"]), _betas(group)
    if isinstance(optimizer, Adam):
        taken = max((int(state["step"]) for state in optimizer.state.values()), default=0)
        return Rule(rate, momentum, averaged=True, taken=taken)
    return Rule(rate, momentum, nesterov=bool(group.get("nesterov")))


def preconditioner_of(
    optimizer: Optimizer, networks: Sequence[Network], leaves: Mapping[str, Tensor], gradient: Factors, memory: float
) -> Preconditioner:
    r"""Return the preconditioner of an optimiser: that of its state, or one in its place.

    Without a state, Adam and RMSprop have the root of the diagonal of the Gauss-Newton matrix, to which their mean of
    squared gradients is proportional where residuals are independent and of one size; not less than 1e-3 of its root
    mean square, and scaled to the size of the gradient.
    """
    names = {id(leaf): name for name, leaf in leaves.items()}
    states = {names[id(leaf)]: state for leaf, state in optimizer.state.items() if state}
    adaptive = isinstance(optimizer, Adam | RMSprop)
    if not states:
        return Preconditioner(_from_diagonal(networks, gradient, memory) if adaptive else None)
    group, factors, momentum = optimizer.param_groups[0], {}, {}
    for name, p in networks[0].parameters.items():  # one without a state never had a gradient
        state = states.get(name, {})
        factors[name] = _factor(state, group) if adaptive and state else torch.ones_like(p)
        buffer = state.get("exp_avg", state.get("momentum_buffer"))
        momentum[name] = torch.zeros_like(p) if buffer is None else buffer.detach()
        if "exp_avg" in state:
            momentum[name] = momentum[name] * factors[name]
    moving = rule_of(optimizer).momentum and any(m.any() for m in momentum.values())
    return Preconditioner(factors if adaptive else None, momentum if moving else None)


def preconditioned_gram(networks: Sequence[Network], factors: Factors | None, memory: float) -> Float[Tensor, "nk nk"]:
    r"""Return :math:`\frac1n J P^{-1} J^\top` for a diagonal P.

    With factors :math:`P^{-1}` for each parameter no product of two Gram matrices gives a layer's part, so all columns
    of the Jacobian are formed, some at a time: :math:`p (nk)^2` operations, where the structured Gram matrix may take
    fewer by a factor of the width.
    """
    if factors is None:
        return gram_of(networks, memory)
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
    roots = squares.clamp_min(FLOOR**2 * squares.mean()).sqrt()
    size = torch.cat([g.flatten() for g in gradient.values()]).norm() or squares.new_ones(())  # of a perfect fit
    parts = (roots.norm() / size / roots).split([p.numel() for p in reversed(parameters.values())])
    factors = dict(zip(reversed(parameters), parts, strict=True))
    return {name: factors[name].view_as(p) for name, p in parameters.items()}


def _blocks(networks: Sequence[Network], memory: float) -> Iterator[Float[Tensor, "nk g"]]:
    return blocks_of(networks, max(memory - 16 * count_rows(networks) ** 2 / GIB, 1e-9))


def _factor(state: Mapping[str, Any], group: Mapping[str, Any]) -> Tensor:
    if "square_avg" in state:
        return 1 / (state["square_avg"].sqrt() + group["eps"])
    squares = state.get("max_exp_avg_sq", state["exp_avg_sq"]) / (1 - group["betas"][1] ** int(state["step"]))
    return 1 / (squares.sqrt() + group["eps"])


def _betas(group: Mapping[str, Any]) -> float:
    return float(group["betas"][0] if "betas" in group else group["momentum"])
