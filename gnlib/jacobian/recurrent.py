r"""Recurrent layers of torch as loops over time whose weights act in linear maps, as a layer has them.

`vmap` takes no recurrent kernel, and no function of torch shows the linear maps in it. With input x and state h at a
time, :math:`a = W x + b` and :math:`u = U h + d`, the next h is :math:`\tanh(a + u)` or its rectified linear unit;
that of the long short-term memory and of the gated recurrent unit are as `nn.LSTM` and `nn.GRU` say.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear
from torch.utils._pytree import tree_leaves

State = tuple[Tensor, ...]


def _lstm(a: Float[Tensor, "b 4h"], u: Float[Tensor, "b 4h"], c: Float[Tensor, "b h"]) -> State:
    i, f, g, o = (a + u).chunk(4, 1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _gru(a: Float[Tensor, "b 3h"], u: Float[Tensor, "b 3h"], h: Float[Tensor, "b h"]) -> State:
    (r, z, n), (r_of_h, z_of_h, n_of_h) = a.chunk(3, 1), u.chunk(3, 1)
    n = (n + (r + r_of_h).sigmoid() * n_of_h).tanh()
    return (n + (z + z_of_h).sigmoid() * (h - n),)


def _plain(activation: Callable[[Tensor], Tensor], a: Tensor, u: Tensor, h: Float[Tensor, "b h"]) -> State:
    return (activation(a + u),)


def _cell(
    step: Callable[..., State],
    x: Float[Tensor, "b i"],
    state: Tensor | State,
    w: Tensor,
    u: Tensor,
    b: Tensor | None = None,
    d: Tensor | None = None,
) -> Tensor | State:
    """Return the next state, in the arrangement that the functions of torch for one time step have."""
    states = (state,) if isinstance(state, Tensor) else tuple(state)
    after = step(linear(x, w, b), linear(states[0], u, d), states[-1])
    return after if len(after) > 1 else after[0]


def _layers(
    step: Callable[..., State],
    x: Float[Tensor, "t b i"],
    state: Tensor | State,
    weights: Sequence[Tensor],
    biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    both_ways: bool,
    batch_first: bool,
) -> State:
    """Return the outputs at all times and the last states, for layer after layer."""
    states = (state,) if isinstance(state, Tensor) else tuple(state)
    passes = layers * (1 + both_ways)
    each = len(weights) // passes
    x, ends = x.transpose(0, 1) if batch_first else x, list[State]()
    for _ in range(layers):
        ways = []
        for back in range(1 + both_ways):
            number = len(ends)
            w, u, *others = weights[each * number : each * (number + 1)]
            b, d = others[:2] if biases else (None, None)
            project = others[2 * biases :]
            now, hidden = tuple(s[number] for s in states), []
            for a in linear(x.flip(0) if back else x, w, b).unbind(0):
                now = step(a, linear(now[0], u, d), now[-1])
                if project:
                    now = linear(now[0], project[0]), *now[1:]
                hidden.append(now[0])
            ends.append(now)
            ways.append(torch.stack(hidden[::-1] if back else hidden))
        x = torch.cat(ways, 2)
    return x.transpose(0, 1) if batch_first else x, *(torch.stack(s) for s in zip(*ends, strict=True))


STEPS: dict[Callable[..., Any], Callable[..., State]] = {
    torch.lstm: _lstm,
    torch.gru: _gru,
    torch.rnn_tanh: partial(_plain, torch.tanh),
    torch.rnn_relu: partial(_plain, torch.relu),
}
CELLS: dict[Callable[..., Any], Callable[..., State]] = {
    torch.lstm_cell: _lstm,
    torch.gru_cell: _gru,
    torch.rnn_tanh_cell: STEPS[torch.rnn_tanh],
    torch.rnn_relu_cell: STEPS[torch.rnn_relu],
}


def steps_of(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Callable[..., Any] | None:
    """Return a loop of linear maps that stands for a recurrent function of torch; None for any other function.

    There is none for sequences that are packed, nor where units drop out.
    """
    if kwargs:
        return None
    if function in CELLS:
        return partial(_cell, CELLS[function])
    if function not in STEPS or not isinstance(args[3], bool):
        return None
    dropout, train = args[5:7]
    return None if train and dropout else partial(_layers, STEPS[function])


def _in_steps_if_mapped(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a recurrent function of torch, or its loop where `vmap` maps over one of the arguments."""
    steps = steps_of(function, args, kwargs) if any(map(_is_mapped, tree_leaves(args))) else None
    return function(*args, **kwargs) if steps is None else steps(*args)


def _is_mapped(value: object) -> bool:
    functorch = torch._C._functorch
    while isinstance(value, Tensor) and functorch.is_functorch_wrapped_tensor(value):
        if functorch.is_batchedtensor(value):
            return True
        value = functorch.get_unwrapped(value)
    return False


MAPPED: dict[Callable[..., Any], Callable[..., Any]] = {f: partial(_in_steps_if_mapped, f) for f in STEPS}
"""What stands in the place of a recurrent function, so that `vmap` takes it."""
