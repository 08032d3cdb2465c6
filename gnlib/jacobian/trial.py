"""The trial of a module: whether its outputs are a function that can be differentiated, and sample by sample.

Weights of zero hide things: a head that is zero makes the outputs the same whatever goes on below it, while its
derivative shows all of it. So modules are tried near the given parameters too.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import agree
from gnlib.jacobian.first_calls import (
    FEW,
    Parameters,
    ask_for_mode,
    attempt,
    can_vmap,
    check_precision,
    check_state,
    check_sums,
    check_training,
    copies,
    first_call,
    move,
    sums,
)
from gnlib.jacobian.randomness import Handed, Replaced

if TYPE_CHECKING:
    from gnlib.jacobian.network import Network

STEPS = 0.01, 0.1  # relative sizes of the perturbations
GIB = 2**30
WORKING = 2**25  # bytes that calls on a few samples take; twice as fast as with memory that is new at each call
RANDOM = "The outputs change from call to call: a random function has no Jacobian; fix its noise"


class Findings(NamedTuple):
    """What is known of a module after its trial.

    Attributes
    ----------
    outputs
        number k of outputs of a sample
    coupled
        whether the outputs of a sample depend on the other samples of the batch
    vmapped
        whether samples can be differentiated together; otherwise it takes one backward pass for each
    bytes_per_sample
        memory of a forward and a backward pass, for each sample
    backward
        names of the functions that a backward pass goes through
    """

    outputs: int
    coupled: bool
    vmapped: bool
    bytes_per_sample: float
    backward: set[str]


@torch.inference_mode(False)
@torch.no_grad()
def examine(network: Network, memory: float) -> Findings:
    """Try the function of a network, on all samples; refuse what has no Jacobian, or more than one.

    Parameters
    ----------
    network
        the function
    memory
        GiB that calls on many samples may take; what does not fit is tried in parts
    """
    parameters = copies(network)
    with Handed() as handed:
        with network.as_template():
            coupled = ask_for_mode(network)
            outputs, taken, backward = first_call(network, parameters)
            move(parameters, network, STEPS[0])
            start = network(parameters, network.x[:FEW])
        # without a backward pass it takes less
        fits = len(network.x) if coupled else max(int((memory * GIB - network.copied) / max(taken, 1)), FEW)
        trial = _Trial(network, min(fits, len(network.x)), max(int(WORKING / max(taken, 1)), FEW), handed)
        with network.as_template():
            network.generators.advance()
            trial.check_few(parameters, start)
            vmapped = not coupled and can_vmap(network)
            if coupled:
                move(parameters, network, STEPS[1])
                trial.same(trial.whole(parameters), trial.whole(parameters))
            elif len(network.x) > 1:
                coupled = trial.coupled(parameters, vmapped)
    return Findings(outputs, coupled, vmapped and not coupled, taken, backward)


class _Trial:
    """Calls of a network on many samples, each of them watched for random numbers.

    All of them go together, or in parts as large as fit; for comparison in pieces, as small as is fast.
    """

    def __init__(self, network: Network, part: int, piece: int, handed: Handed) -> None:
        self._network, self._part, self._piece, self._handed = network, part, min(part, piece), handed

    def check_few(self, near: Parameters, start: Tensor) -> None:
        """Refuse, on a few samples, what is random, loses digits, changes parameters or goes on from call to call."""
        network, few = self._network, self._network.x[:FEW]
        states = self._handed.states
        states.clear()
        first = network(near, few)  # what is drawn or seeded once is so now
        once = list(states)
        y = self._watched(lambda: network(near, few))
        if states[: 2 * len(once)] != 2 * once:
            raise ValueError(self._random)
        self.same(y, first)
        self.same(y, start)
        check_precision(network, near, y)
        if network.mode is None:
            check_training(network, near, y)
        if network.mode != "train":
            check_state(network, near, y)

    @property
    def _random(self) -> str:
        training = self._network.mode is None and any(m.training for m in self._network.module.modules())
        return RANDOM + (", or pass mode='eval' if it belongs to training." if training else ".")

    def same(self, y: Tensor, again: Tensor) -> None:
        """Refuse outputs that are not the same twice."""
        if not agree(y, again):
            raise ValueError(self._random)

    def coupled(self, parameters: Parameters, vmapped: bool) -> bool:
        """Say whether the outputs of a sample depend on the other samples; refuse it unless it is meant."""
        network, n = self._network, len(self._network.x)
        generator = torch.Generator().manual_seed(0)
        order = torch.randperm(n, generator=generator, device=generator.device).to(network.x.device)
        ways: list[tuple[float, Callable[[Parameters], Tensor]]] = [
            (0.0, lambda p: self._shuffled(p, order)),
            (STEPS[1], self._vmapped if vmapped else self._one_by_one),
        ]
        for step, apart in ways:
            move(parameters, network, step)
            together, alone = self.whole(parameters), None
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # such as that one sample has no standard deviation
                    alone = apart(parameters)
            except Exception as error:
                if network.mode != "train":
                    raise ValueError(
                        f"module fails on fewer samples, though not on all {n} of x: {error} (A squeeze() drops the "
                        "axis of the samples where there is one; name the axis. If the outputs of a sample are meant "
                        "to depend on the others, pass mode='train'.)"
                    ) from error
            if alone is None or not agree(alone, together):
                self.same(self.whole(parameters), together)
                if network.mode != "train":
                    raise ValueError(
                        "The outputs of a sample depend on the other samples of the batch. If the first axis of x does "
                        "not count samples, transpose it; if this is meant, pass mode='train'."
                    )
                return True
        return False

    def whole(self, parameters: Parameters) -> Float[Tensor, "n k"]:
        """Return the outputs on all samples, together if they fit."""
        before = sums(parameters)
        y = torch.cat([self._call(parameters, x) for x in self._network.x.split(self._part)])
        check_sums(parameters, before)
        return y

    def _shuffled(self, parameters: Parameters, order: Tensor) -> Float[Tensor, "n k"]:
        pieces = order.tensor_split(max(2, math.ceil(len(order) / self._piece)))
        y = torch.cat([self._call(parameters, self._network.x[piece]) for piece in pieces])
        return torch.empty_like(y).index_copy_(0, order, y)

    def _vmapped(self, parameters: Parameters) -> Float[Tensor, "n k"]:
        def alone(x: Tensor) -> Tensor:
            return self._network(parameters, x[None])[0]

        return torch.vmap(alone, chunk_size=self._piece)(self._network.x)

    def _one_by_one(self, parameters: Parameters) -> Float[Tensor, "n k"]:
        return torch.cat([self._network(parameters, x) for x in self._network.x.split(1)])

    def _call(self, parameters: Parameters, x: Tensor) -> Float[Tensor, "m k"]:
        return self._watched(lambda: attempt(self._network, parameters, x, f"{len(x)} samples of x"))

    def _watched(self, call: Callable[[], Tensor]) -> Tensor:
        """Call a function and refuse it if it draws random numbers, unless they turn out not to matter."""
        generators = self._network.generators
        before = generators.states()
        y = call()
        if generators.drawn_from(before):
            found = []
            for number in (0.0, 0.5, 1 - torch.finfo(torch.float64).eps):
                before = generators.states()
                with Replaced(generators, number):
                    found.append(call())
                if generators.drawn_from(before) or not agree(found[-1], found[0]):
                    raise ValueError(self._random)
        return y
