"""Compare calls of a function on samples in different company, and calls that ought to be the same."""

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from gnlib.checks import EPS, agree, agree_in_parts, largest_entry
from gnlib.jacobian.cut import CutPullback, pull_cut
from gnlib.jacobian.footprint import First
from gnlib.jacobian.network import Factors, Function, Pullback, move, pullback, pullback_together
from gnlib.jacobian.randomness import ConstantUniform, PassedGenerators
from gnlib.jacobian.record import Structure
from gnlib.jacobian.refusals import RANDOM, attempt, check_outputs, describe, fails_on_fewer, state_of, unchanged
from gnlib.refused import Refused

Pull = Callable[[Factors], tuple[Pullback, list[float]]]
Found = TypeVar("Found", Pullback, CutPullback)
WORKING = 2**27  # bytes that calls on a few samples take, from which on larger ones save nothing
REPEATS = 3  # calls that find a state of a short period


class Comparison:
    """Calls of a function on many samples, in each of which random numbers are refused.

    All samples go together, or in parts as large as fit; for comparison in pieces, as small as is fast.
    """

    def __init__(self, function: Function, first: First, part: int, passed: PassedGenerators) -> None:
        self._function, self._first, self._part, self._passed = function, first, part, passed
        self._piece = min(part, max(int(WORKING / max(first.bytes, 1)), len(first.x)))
        self._states = [state_of(function.module)]
        generator, n = torch.Generator().manual_seed(0), len(function.x)
        weights = torch.randn(n, first.outputs, generator=generator, dtype=torch.float64, device=generator.device)
        self._weights = weights.to(function.x.device)
        self._order = torch.randperm(n, generator=generator, device=generator.device).to(function.x.device)

    def check_first(self, parameters: Factors, start: Tensor) -> Sequence[Tensor]:
        """Return gradients on the first samples; refuse a function that is random, loses digits or changes by calls."""
        function, first, states = self._function, self._first.x, self._passed.states
        states.clear()
        self._states = [state_of(function.module)]
        once = function.evaluate(parameters, first)  # a number that is drawn or seeded once is so now
        self._states.append(state_of(function.module))
        passed = list(states)
        with unchanged(parameters):
            y = self._fixed(lambda: Pullback(function.evaluate(parameters, first), ())).outputs
        if states[: 2 * len(passed)] != 2 * passed:
            raise Refused("random-module", self._message)
        for other in (start, once):
            self._states.append(state_of(function.module))
            self.check_same(y, other)
        for _ in range(REPEATS):
            again = function.evaluate(parameters, first)
            self._states.append(state_of(function.module))
            self.check_same(again, y)
        return check_outputs(function, parameters, first, self._first.hidden, y)

    def check_same(self, y: Tensor, again: Tensor) -> None:
        """Refuse outputs that are not the same twice."""
        if not agree(y, again):
            raise Refused("random-module", self._message)

    def check_twice(self, parameters: Factors) -> None:
        """Refuse, near the given parameters, outputs on all samples that are not the same twice."""
        once = move(parameters, self._function.parameters, lambda: Pullback(self.outputs(parameters), ()))
        self.check_same(self.outputs(parameters), once.outputs)

    def outputs(self, parameters: Factors) -> Tensor:
        """Return the outputs on all samples, together if they fit."""
        with unchanged(parameters):
            return self._outputs(parameters, self._slices(self._part))[0].outputs

    def alone_by_layers(self, parameters: Factors, structure: Structure) -> bool:
        """Say whether samples are independent as all layers see it.

        What says no is asked by `derivatives_are_coupled` again of the gradients by the weights, which take longer, and
        which tell why.
        """
        pull = partial(self._pull_cut, parameters, structure)
        try:
            with unchanged(parameters):
                together = pull(self._slices(self._part))
                alone = pull(self._slices(self._piece), one_by_one=True)
        except Exception:  # of many types: the longer way says which
            return False
        return bool(together.outputs.isfinite().all()) and together.agrees_with(alone)

    def _pull_cut(
        self, parameters: Factors, structure: Structure, pieces: Sequence[slice], *, one_by_one: bool = False
    ) -> CutPullback:
        function, parts, sums = self._function, list[CutPullback](), list[Tensor]()
        pull = partial(pull_cut, function, structure, parameters, one_by_one=one_by_one)
        for piece in pieces:
            found = self._fixed(partial(pull, function.x[piece], self._weights[piece]))
            sums = [s + g for s, g in zip(sums, found.others, strict=True)] if sums else found.others
            parts.append(found)
        outputs, features, gradients = (torch.cat(each) for each in [*zip(*parts, strict=True)][:3])
        return CutPullback(outputs, features, gradients, sums)

    def derivatives_are_coupled(self, parameters: Factors, vmapped: bool) -> bool:
        """Say whether outputs of a sample, or their derivatives, depend on the other samples; unless meant, refuse it.

        All samples at once are compared with samples one by one, near the given parameters.
        """
        singly = partial(self._pull_pieces, pieces=self._slices(1))
        pulls = [self._pull_mapped, self._pull_tracked] if vmapped else [singly]
        together = move(parameters, self._function.parameters, lambda: self._pull_all(parameters))
        return self._is_other(pulls, parameters, together)

    def outputs_are_coupled(self, parameters: Factors, y: Tensor) -> bool:
        """Say the same of the outputs y alone, compared with those of samples that are shuffled in small pieces."""
        shuffled = self._order.tensor_split(max(2, math.ceil(len(y) / self._piece)))
        return self._is_other([partial(self._outputs, pieces=shuffled)], parameters, Pullback(y, ()))

    def _is_other(self, pulls: Sequence[Pull], parameters: Factors, together: Pullback) -> bool:
        """Say whether calls in other company differ from those of all samples at once; the first to agree is enough."""
        for pull in pulls:
            what, apart, error = self._difference(pull, parameters, together)
            if not what:
                return False
        if error and self._function.mode != "train":
            raise fails_on_fewer(self._function, error.__cause__ or error) from error
        self.check_same(self.outputs(parameters), together.outputs)
        if apart is not None:
            self.check_same(pull(parameters)[0].outputs, apart.outputs)
        if self._function.mode != "train":
            raise Refused(
                "samples-coupled",
                f"The {what} of a sample depend on the other samples of the batch. If the first axis of x does "
                "not count samples, transpose it; if this is meant, pass mode='train'.",
            )
        return True

    def _difference(
        self, pull: Pull, parameters: Factors, together: Pullback
    ) -> tuple[str, Pullback | None, Exception | None]:
        """Say what of the results of calls in other company is not as together, if anything, or why they failed."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # such as that one sample has no standard deviation
                apart, sizes = pull(parameters)
        except Exception as error:
            return "outputs", None, error
        if not agree(apart.outputs, together.outputs):
            return "outputs", apart, None
        same = agree_in_parts(apart.gradients, together.gradients, sizes)
        return "" if same else "derivatives of the outputs", apart, None

    def _outputs(self, parameters: Factors, pieces: Sequence[Any]) -> tuple[Pullback, list[float]]:
        """Return the outputs alone, of a call on each piece."""

        def pull(some: Tensor | slice) -> Pullback:
            return Pullback(self._function.evaluate(parameters, self._function.x[some], call=self._attempt), ())

        return self._sum(pieces, pull)

    def _attempt(self, tensors: Factors, x: Tensor) -> Tensor:
        return attempt(self._function, tensors, x, f"{len(x)} samples of x")

    def _pull_all(self, parameters: Factors) -> Pullback:
        with unchanged(parameters):
            return self._pull_pieces(parameters, self._slices(self._part), self._attempt)[0]

    def _pull_pieces(
        self, parameters: Factors, pieces: Sequence[Any], function: Any = None
    ) -> tuple[Pullback, list[float]]:
        def pull(some: Tensor | slice) -> Pullback:
            call = partial(function or self._function, x=self._function.x[some])
            return pullback(self._function, parameters, call, self._weights[some])

        return self._sum(pieces, pull)

    def _pull_mapped(self, parameters: Factors) -> tuple[Pullback, list[float]]:
        """Call samples one by one, all in one call, and go back once: a module sees no gradients there."""

        def call(tensors: Factors, x: Tensor) -> Tensor:
            return torch.vmap(lambda one: self._function(tensors, one[None])[0])(x)

        return self._pull_pieces(parameters, self._slices(self._piece), call)

    def _pull_tracked(self, parameters: Factors) -> tuple[Pullback, list[float]]:
        """Call samples one by one, all in one call, and go back for each."""
        function = self._function

        def pull(some: slice) -> Pullback:
            y, gradients = pullback_together(function, parameters, function.x[some], self._weights[some])
            return Pullback(y, [g.sum(0) for g in gradients.values()])

        size = 8 * sum(p.numel() for p in function.parameters.values())
        return self._sum(self._slices(min(self._piece, max(WORKING // size, 1))), pull)

    def _slices(self, size: int) -> list[slice]:
        return [slice(start, start + size) for start in range(0, len(self._function.x), size)]

    def _sum(self, pieces: Sequence[Any], pull: Callable[[Any], Pullback]) -> tuple[Pullback, list[float]]:
        """Return outputs and gradients from calls on pieces, and for each parameter the size of what was added."""
        outputs, sums, sizes = torch.empty_like(self._weights), list[Tensor](), list[float]()
        for piece in pieces:
            outputs[piece], gradients = self._fixed(partial(pull, piece))
            added = [*map(largest_entry, gradients)]
            sums = [s + g for s, g in zip(sums, gradients, strict=True)] if sums else [*gradients]
            sizes = [size + more for size, more in zip(sizes, added, strict=True)] if sizes else added
        return Pullback(outputs, sums), sizes

    def _fixed(self, pull: Callable[[], Found]) -> Found:
        """Return the result of a call; refuse random numbers in it, unless they turn out not to matter.

        They do not matter if the outputs are the same with other uniform numbers, and no others are drawn.
        """
        generators = self._function.generators
        before = generators.states()
        found = pull()
        if generators.drawn_from(before):
            outputs = []
            for number in (0.0, 0.5, 1 - EPS):
                before = generators.states()
                with ConstantUniform(generators, number):
                    outputs.append(pull().outputs)
                if generators.drawn_from(before) or not agree(outputs[-1], outputs[0]):
                    raise Refused("random-module", self._message)
        return found

    @property
    def _message(self) -> str:
        function = self._function
        now = state_of(function.module)
        for key, value in now.items():
            if any(state.get(key, value) != value for state in self._states):
                module = describe(key[0], function.module.get_submodule(key[0]))
                return (
                    f"The outputs change from call to call, and so does {key[1]} of {module}, on which they may "
                    "depend: a function with a state has no Jacobian; keep it as it is."
                )
        training = function.mode is None and any(m.training for m in function.module.modules())
        return RANDOM + (", or pass mode='eval' if it belongs to training." if training else ".")
