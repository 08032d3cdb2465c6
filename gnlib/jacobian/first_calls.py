"""What a few samples tell of a module: whether it can be called and differentiated, in which mode and precision."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from gnlib.checks import REPAIR, agree, as_outputs
from gnlib.jacobian.double import Losses
from gnlib.jacobian.intercept import Watch

if TYPE_CHECKING:
    from gnlib.jacobian.network import Network

FEW = 2  # samples
PERIOD = 65537  # after which the noise that moves large weights repeats: drawing takes ten times as long as using it
CLOSE = 1e-12  # relative difference of outputs that go through the same operations

Parameters = dict[str, Tensor]


def ask_for_mode(network: Network) -> bool:
    """Ask which function is meant where known layers leave it open, and say whether they couple the samples."""
    dropout, learning, coupled = [], [], False
    for name, m in network.module.named_modules():
        p = m.p if isinstance(m, _DropoutNd) else getattr(m, "dropout", 0.0)  # attention and RNNs hold a number
        if m.training and isinstance(p, int | float) and p > 0:
            dropout.append(described(name, m))
        if isinstance(m, _BatchNorm):
            coupled |= m.training or m.running_mean is None
            learning += [described(name, m)] * m.training
    if network.mode is None and dropout + learning:
        raise ValueError(
            f"{(dropout + learning)[0]} is in training mode; say which function is meant: mode='eval' (running "
            "statistics, no dropout) or mode='train' (statistics of the batch)."
        )
    if dropout:
        raise ValueError(
            f"{dropout[0]} drops out in training mode, and a random function has no Jacobian; pass mode='eval', or "
            "set its probability to 0."
        )
    return coupled


def first_call(network: Network, given: Parameters) -> tuple[int, float, set[str]]:
    """Return the number of outputs, and the memory and the functions of a backward pass, or say what is wrong."""
    few = network.x[:FEW]
    own = {id(p): name for name, p in network.module.named_parameters()}
    before = sums(given)
    leaves = {name: given[name].detach().requires_grad_() for name in network.parameters}
    footprint = _Footprint(leaves.values())
    saving = torch.autograd.graph.saved_tensors_hooks(footprint.save, lambda tensor: tensor)
    with torch.enable_grad(), footprint, saving, warnings.catch_warnings():
        warnings.filterwarnings("error", "None of the inputs have requires_grad")  # a checkpoint that drops gradients
        y = attempt(network, given | leaves, few, f"the first {len(few)} samples of x")
    check_sums(given, before)
    nodes = set(_nodes(y))
    for node in nodes:
        if (leaf := id(getattr(node, "variable", None))) in own:
            raise ValueError(
                f"The outputs depend on the parameter {own[leaf]} in a place where it is not registered (such as a "
                "list), so that it cannot be exchanged; use it by its name, or keep it in a ParameterList."
            )
    if not y.requires_grad:
        raise ValueError(
            "The outputs do not depend on the parameters in a way that can be differentiated; do not detach them, "
            "nor compute them under torch.no_grad()."
        )
    if not torch.isfinite(y).all():
        raise ValueError(f"The outputs have NaN or infinite entries in the first {len(few)} samples; {REPAIR}")
    return y.shape[1], footprint.bytes / len(few), {node.name().rstrip("0123456789") for node in nodes}


def _nodes(y: Tensor) -> Iterator[torch.autograd.graph.Node]:
    """Yield what a backward pass goes through."""
    nodes, seen = [y.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            nodes += [before for before, _ in node.next_functions]
            yield node


def check_precision(network: Network, near: Parameters, y: Tensor) -> None:
    """Refuse a function that computes in a lower precision out of sight, or that cannot be differentiated."""
    few = network.x[:FEW]
    leaves = {name: near[name].detach().requires_grad_() for name in network.parameters}
    try:
        with torch.enable_grad():
            with Losses() as losses:
                seen = network({**near, **leaves}, few)
                network.pull(leaves, seen, torch.ones_like(seen))
    except Exception as error:
        raise ValueError(
            f"module cannot be differentiated, in double precision: {error} (Switch checkpoints off, which changes no "
            "number; write functions of your own so that they take the dtype of their input.)"
        ) from error
    # scripted functions run as Python functions where operations are watched
    if losses.found or not agree(seen.detach(), y, CLOSE):
        lost = ", ".join(f"{name} returns {dtype}" for name, dtype in losses.found.items())
        raise ValueError(
            f"The network computes in a lower precision than double where it cannot be changed "
            f"({lost or 'in a scripted function'}); write that part so that it takes the dtype of its input."
        )


def check_state(network: Network, near: Parameters, y: Tensor) -> None:
    """Refuse a function whose next call differs because of what a call leaves behind, unless that is meant."""
    few, tensors = network.x[:FEW], network.tensors(near)
    network.call(tensors, few)
    changed = [name for name, b in network.buffers.items() if not torch.equal(tensors[name], b)]
    if changed and not agree(as_outputs(network.call(tensors, few), len(few)), y):
        name, _, buffer = changed[0].rpartition(".")
        raise ValueError(
            f"The outputs change from call to call: {described(name, network.module.get_submodule(name))} changes its "
            f"{buffer}, on which they depend; keep it as it is."
        )


def check_training(network: Network, near: Parameters, y: Tensor) -> None:
    """Ask which function is meant if any layer is another one in training than in evaluation."""
    training = [(name, m) for name, m in network.module.named_modules() if m.training]

    def same(modules: list[tuple[str, nn.Module]]) -> bool:
        for _, m in modules:
            m.training = False
        try:
            return agree(network(near, network.x[:FEW]), y)
        finally:
            for _, m in modules:
                m.training = True

    if training and not same(training):
        one = next((which for which in reversed(training) if not same([which])), training[0])
        raise ValueError(
            f"{described(*one)} is in training mode, where it is another function than in evaluation; say which one "
            "is meant: mode='eval' or mode='train'."
        )


def can_vmap(network: Network) -> bool:
    """Say whether samples can be differentiated together."""

    def first_row(x: Tensor) -> dict[str, Tensor]:
        y, vjp, *_ = torch.func.vjp(lambda p: network(p, x[None]), network.parameters)
        gradients: dict[str, Tensor] = vjp(torch.ones_like(y))[0]
        return gradients

    try:
        torch.vmap(first_row)(network.x[:1])
    except Exception:  # in-place operations, control flow that depends on data, kernels without a rule: many types
        return False
    return True


def attempt(network: Network, parameters: Parameters, x: Tensor, what: str) -> Float[Tensor, "m k"]:
    """Call the function, and say what to look at if that fails."""
    try:
        result = network.call(network.tensors(parameters), x)
    except Exception as error:
        hint = (
            "Check the shape of x, and that tensors made in a forward pass take the dtype and the device of its input."
        )
        if not x.is_floating_point():
            hint = (
                f"x is of {x.dtype}, and integers are passed on as they are, such as the numbers of tokens; if they "
                "are images or other measurements, pass x.double(), scaled as in training."
            )
        raise ValueError(f"module fails on {what}, in double precision: {error} ({hint})") from error
    return as_outputs(result, len(x))


def copies(network: Network) -> Parameters:
    """Return copies of all parameters, laid out row by row."""
    return {
        name: p.clone(memory_format=torch.contiguous_format)
        for name, p in {**network.frozen, **network.parameters}.items()
    }


def move(parameters: Parameters, network: Network, step: float) -> None:
    """Move copies of parameters that require a gradient by so much of their given size, each entry.

    In the place of a zero stands a small number, or else it would hide what depends on it.
    """
    generator = torch.Generator().manual_seed(round(1000 * step))
    for name, p in network.parameters.items():
        copy = parameters[name].copy_(p)
        if step:
            noise = torch.randn(min(p.numel(), PERIOD), generator=generator, dtype=p.dtype, device=generator.device)
            noise = noise.mul_(step).to(p.device)
            size = torch.linalg.vector_norm(p).item() / math.sqrt(p.numel()) or 1.0
            for entries, given in zip(copy.view(-1).split(PERIOD), p.flatten().split(PERIOD), strict=True):
                entries.addcmul_(torch.where(given == 0, size, given), noise[: len(given)])


def sums(tensors: Parameters) -> list[int | float]:
    """Return what tells whether parameters have changed, without copies of them."""
    return [t.sum().item() for t in tensors.values()]


def check_sums(parameters: Parameters, before: list[int | float]) -> None:
    """Refuse a forward pass that has changed parameters."""
    for (name, p), was in zip(parameters.items(), before, strict=True):
        if p.sum().item() != was:
            raise ValueError(
                f"The forward pass changes the parameter {name} in place (as max_norm of an embedding does), so that "
                "the function is not the one that is differentiated; change it beforehand and leave that out."
            )


def described(name: str, module: nn.Module) -> str:
    """Return the name of a module and its type."""
    return f"{name or 'module'} ({type(module).__name__})"


class _Footprint(Watch):
    """Memory of a backward pass through what is computed in this context.

    It takes the tensors that autograd saves, and the unfolded input of a convolution, which no tensor shows: on a CPU,
    convolutions in double precision are matrix products.
    """

    def __init__(self, leaves: Iterable[Tensor]) -> None:
        super().__init__()
        self._saved: dict[int, int] = {}
        self._unfolded = 0
        self._leaves = {leaf.untyped_storage().data_ptr() for leaf in leaves}

    @property
    def bytes(self) -> int:
        """Bytes seen so far."""
        return sum(self._saved.values()) + self._unfolded

    def save(self, tensor: Tensor) -> Tensor:
        """Take note of a tensor that autograd saves."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._leaves:
            self._saved[storage.data_ptr()] = min(storage.nbytes(), tensor.nbytes)
        return tensor.detach()  # with its history, an output that its own function saves would never be freed

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function of torch, and see whether it is a convolution."""
        result = function(*args, **kwargs)
        if getattr(function, "__name__", "").startswith("conv") and len(args) > 1:
            x, weight = args[:2]
            images = max(x.numel() // x.shape[1], result.numel() // result.shape[1])
            self._unfolded = max(self._unfolded, 8 * images * weight[0].numel())
        return result
