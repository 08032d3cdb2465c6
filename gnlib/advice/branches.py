"""Branches that are added to what goes past them, and smaller ones to begin with."""

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from gnlib.advice.layers import Within, is_norm, is_unit

SUMS = "add", "add_", "__add__", "__radd__", "__iadd__"


class _Sums(TorchFunctionMode):
    """Watches sums of two tensors of one shape, of which one has left a layer and gone nowhere else."""

    def __init__(self) -> None:
        super().__init__()
        self.left: dict[int, tuple[str, Tensor]] = {}  # the tensors are held, so that no other one gets their place
        self.taken: set[int] = set()  # by another function: what went on from there goes past a branch
        self.ends: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        known = [t for t in args if isinstance(t, Tensor) and id(t) in self.left]
        if func.__name__ not in SUMS:
            self.taken |= {id(t) for t in known if isinstance(result, Tensor) and result is not t}
        elif all(isinstance(t, Tensor) for t in args[:2]) and args[0].shape == args[1].shape:
            ends = [t for t in known if id(t) not in self.taken]
            self.ends += [self.left[id(t)][0] for t in ends if len(ends) == 1]
        return result

    def seen(self, name: str, module: nn.Module, inputs: Any, output: Any) -> None:
        """Note what has left a layer, or has since passed through what has no weights."""
        output = output[0] if isinstance(output, tuple) else output
        passed = self.left.get(id(inputs[0]), ("", None))[0] if inputs else ""
        if isinstance(module, nn.MultiheadAttention):
            self.left[id(output)] = f"{name}.out_proj", output
        elif is_unit(module) or (is_norm(module) and module._parameters.get("weight") is not None):
            self.left[id(output)] = name, output
        elif passed and (is_norm(module) or "Drop" in type(module).__name__ or isinstance(module, nn.Identity)):
            self.left[id(output)] = passed, output


@torch.no_grad()
def ends_of_branches(module: nn.Module, call: Callable[[nn.Module], Any]) -> list[str]:
    """Return the names of the layers, or normalisations, whose outputs are added to what went past them.

    Examples
    --------
    >>> class Block(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
    ...
    ...     def forward(self, x):
    ...         return x + self.b(torch.relu(self.a(x)))
    >>> ends_of_branches(nn.Sequential(Block(), nn.Linear(2, 1)), lambda m: m(torch.ones(1, 2)))
    ['0.b']
    """
    copied, sums = copy.deepcopy(module), _Sums()
    for name, m in copied.named_modules():
        if is_unit(m) or isinstance(m, nn.MultiheadAttention) or not [*m.children()]:
            m.register_forward_hook(partial(sums.seen, name))
    with sums:
        call(copied)
    return [*dict.fromkeys(sums.ends)]


def smaller(module: nn.Module, ends: Sequence[str]) -> Iterator[Within]:
    """Let branches begin with zero, or divided by the root of their number.

    Examples
    --------
    >>> [change.what for change in smaller(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), ["0", "1"])]
    ['zero weights at the end of 2 branches', '2 branches divided by the root of their number']
    """
    if any(module.get_submodule(name).get_parameter("weight").any() for name in ends):
        of = "1 branch" if len(ends) == 1 else f"{len(ends)} branches"
        yield Within(f"zero weights at the end of {of}", partial(_scaled, ends=ends, factor=0.0))
        if len(ends) > 1:
            root = partial(_scaled, ends=ends, factor=len(ends) ** -0.5)
            yield Within(f"{of} divided by the root of their number", root)


@torch.no_grad()
def _scaled(module: nn.Module, ends: Sequence[str], factor: float) -> nn.Module:
    for name in ends:
        for p in module.get_submodule(name).parameters(recurse=False):
            p.mul_(factor)
    return module
