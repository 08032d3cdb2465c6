"""The samples, outputs and units that carry the smallest eigenvalue."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from gnlib.diagnosis.reach import Waiting, unreached_units
from gnlib.plain import as_dict
from gnlib.problem import Problem
from gnlib.refused import Refused
from gnlib.text import listed

CLOSE = 1e-2  # of the usual distance between the derivatives of two samples, below which they are near each other
EQUAL = 1e-7  # of it, below which they differ by rounding: a distance is the root of a difference
SHOWN = 0.01  # share of the low end


class Pair(NamedTuple):
    """Two samples, or two outputs, with derivatives that are nearly the same."""

    first: int
    second: int
    distance: float  # of their derivatives, over the usual one; 0 if it is rounding
    equal: bool  # whether one can go: the same inputs of both samples, or the same derivatives of both outputs

    def __str__(self) -> str:
        """Return a clause."""
        how = "equal" if self.distance == 0 else f"near each other ({self.distance:.1g} of the usual distance)"
        return f"{self.first} and {self.second} are {how}"


@dataclass(frozen=True)
class Culprits:
    """The samples, outputs and units behind the smallest eigenvalue.

    Attributes
    ----------
    samples, outputs
        numbers of the samples and of the outputs with the largest share of the eigenvectors at the low end (of those
        to the eigenvalue zero, if there are any), and that share
    equal_samples, equal_outputs
        pairs of samples, and of outputs, with nearly the same derivatives, the closest first
    constant_outputs
        outputs that are the same for all samples
    unmoved_outputs
        outputs that do not react to any parameter, on any sample
    dead_units
        for each layer the units that no output reacts to, on any sample
    waiting
        the layers that no output reacts to until others, of zeros, have moved
    """

    samples: tuple[tuple[int, float], ...]
    outputs: tuple[tuple[int, float], ...]
    equal_samples: tuple[Pair, ...]
    equal_outputs: tuple[Pair, ...]
    constant_outputs: tuple[int, ...]
    unmoved_outputs: tuple[int, ...]
    dead_units: dict[str, tuple[int, ...]]
    waiting: Waiting | None

    to_dict = as_dict

    def lines(self) -> list[tuple[str, str]]:
        """Return a heading and a sentence for each finding."""
        lines = []
        for kind, carried in (("samples", self.samples), ("outputs", self.outputs)):
            low = ", ".join(f"{i} ({share:.0%})" for i, share in carried if share >= SHOWN)
            lines.append((f"{kind} at the low end", low))
        for kind, pairs in (("samples", self.equal_samples), ("outputs", self.equal_outputs)):
            apart = [pair for pair in pairs if pair.equal or pair.distance]
            kept = "their inputs differ: keep both"
            lines += [(f"{kind} {pair}", "drop one of them" if pair.equal else kept) for pair in apart]
            if alike := [f"{pair.first} and {pair.second}" for pair in pairs if pair not in apart]:
                lines.append((f"the network does not tell {listed(alike)} apart yet", kept))
        for a in self.unmoved_outputs:
            lines.append((f"output {a} reacts to no parameter", "leave it out, or connect it"))
        constant = [a for a in self.constant_outputs if a not in self.unmoved_outputs]
        if constant:
            named = f"output {constant[0]} is" if len(constant) == 1 else f"outputs {listed(constant)} are"
            lines.append((f"{named} the same for all samples", "normal for a head of zeros, else look at its weights"))
        for layer, units in self.dead_units.items():
            dead = f"{len(units)} dead unit{'s' * (len(units) > 1)} in {layer or 'the module'} ({listed(units)})"
            lines.append((dead, "raise their biases, draw them again, or leave them out"))
        return [*lines, *([self.waiting.line()] if self.waiting else [])]

    def __str__(self) -> str:
        """Return one line for each finding."""
        return "\n".join(f"{heading}: {sentence}" for heading, sentence in self.lines())


def culprits_of(problem: Problem, most: int = 5) -> Culprits:
    """Return the samples, outputs and units behind the smallest eigenvalue, `most` of each at most."""
    if most < 1:
        raise Refused("bad-option", f"most is {most}; a positive number was expected.")
    n, k = problem.outputs.shape
    low = _low_end(problem)
    gram = problem.gram.view(n, k, n, k)
    spread = (problem.outputs - problem.outputs.mean(0)).abs().amax(0)
    size = torch.einsum("iaia->a", gram)
    dead, waiting = unreached_units(problem)
    return Culprits(
        samples=_largest(low.sum(1), most),
        outputs=_largest(low.sum(0), most),
        equal_samples=_pairs(torch.einsum("iaja->ij", gram), _inputs(problem), most),
        equal_outputs=_pairs(torch.einsum("iaib->ab", gram), torch.zeros(k, device=gram.device), most),
        constant_outputs=_indices(spread <= EQUAL * problem.outputs.abs().amax()) if n > 1 else (),
        unmoved_outputs=_indices(size <= EQUAL**2 * size.amax()),
        dead_units={layer: _indices(units) for layer, units in dead.items()},
        waiting=waiting,
    )


def _low_end(problem: Problem) -> Float[Tensor, "n k"]:
    """Return the share of each output on each sample in the eigenvectors at the low end."""
    _, vectors = problem.spectrum
    zeros = len(vectors) - problem.rank
    low = vectors[:, : max(zeros, 1)]
    n, _, r = problem.root.shape
    # in the outputs, where a column of the root stands for a mixture of them
    mixed = problem.root @ low.view(n, r, -1)
    return mixed.square().sum(2) / mixed.square().sum()


def _inputs(problem: Problem) -> Shaped[Tensor, " n"]:
    """Return numbers that are equal for samples with equal inputs."""
    numbers: dict[bytes, int] = {}
    inputs = ((x + 0).cpu().numpy().tobytes() for network in problem.networks for x in network.x)  # of -0, too
    return torch.tensor([numbers.setdefault(x, len(numbers)) for x in inputs], device=problem.outputs.device)


def _pairs(gram: Float[Tensor, "m m"], kinds: Shaped[Tensor, " m"], most: int) -> tuple[Pair, ...]:
    """Return pairs that are much closer than usual, from the inner products of their derivatives.

    Those of one kind come first, as one of them can go.
    """
    m = len(gram)
    if m < 3:  # of two, no distance is usual
        return ()
    own = gram.diagonal()
    squares = (own[:, None] + own - 2 * gram).clamp_min(0)
    first, second = torch.triu_indices(m, m, 1, device=gram.device)
    distances = squares[first, second].sqrt()
    usual = distances.median()
    floor = EQUAL * own.amax().sqrt()
    chosen = (distances <= (CLOSE * usual).clamp_min(floor)).nonzero()[:, 0]
    chosen = chosen[distances[chosen].argsort(stable=True)]
    equal = kinds[first] == kinds[second]
    chosen = chosen[(~equal[chosen]).byte().argsort(stable=True)][:most]
    relative = torch.where(distances <= floor, 0.0, distances / usual)
    return tuple(Pair(int(first[i]), int(second[i]), relative[i].item(), bool(equal[i])) for i in chosen.tolist())


def _largest(shares: Float[Tensor, " m"], most: int) -> tuple[tuple[int, float], ...]:
    chosen = shares.argsort(descending=True, stable=True)[:most].tolist()
    return tuple((i, shares[i].item()) for i in chosen)


def _indices(mask: Tensor) -> tuple[int, ...]:
    return tuple(mask.nonzero()[:, 0].tolist())
