"""Which samples, outputs and units carry the smallest eigenvalue."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnlib.diagnosis.inputs import Inputs
from gnlib.diagnosis.measured import Measured
from gnlib.text import listed

NEAR = 1e-2  # of the usual distance between the derivatives of two samples, below which they are near each other
EQUAL = 1e-7  # of it, below which they differ by rounding: a distance is the root of a difference
SHOWN = 0.01  # share of the low end


class Pair(NamedTuple):
    """Two samples, or two outputs, and the distance of their derivatives over the usual one; 0 if they are equal."""

    first: int
    second: int
    distance: float

    def __str__(self) -> str:
        """Return a clause."""
        how = "equal" if self.distance == 0 else f"near each other ({self.distance:.1g} of the usual distance)"
        return f"{self.first} and {self.second} are {how}"


@dataclass(frozen=True)
class Culprits:
    """What is behind the smallest eigenvalue.

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
    """

    samples: tuple[tuple[int, float], ...]
    outputs: tuple[tuple[int, float], ...]
    equal_samples: tuple[Pair, ...]
    equal_outputs: tuple[Pair, ...]
    constant_outputs: tuple[int, ...]
    unmoved_outputs: tuple[int, ...]
    dead_units: dict[str, tuple[int, ...]]

    def lines(self) -> list[tuple[str, str]]:
        """Return a heading and a sentence for each finding."""
        found = []
        for what, carried in (("samples", self.samples), ("outputs", self.outputs)):
            low = ", ".join(f"{i} ({share:.0%})" for i, share in carried if share >= SHOWN)
            found.append((f"{what} at the low end", low))
        for what, pairs in (("samples", self.equal_samples), ("outputs", self.equal_outputs)):
            found += [(f"{what} {pair}", "drop one of them") for pair in pairs]
        for a in self.unmoved_outputs:
            found.append((f"output {a} reacts to no parameter", "leave it out, or connect it"))
        constant = [a for a in self.constant_outputs if a not in self.unmoved_outputs]
        if constant:
            named = f"output {constant[0]} is" if len(constant) == 1 else f"outputs {listed(constant)} are"
            found.append((f"{named} the same for all samples", "normal for a head of zeros, else look at its weights"))
        for layer, units in self.dead_units.items():
            what = f"{len(units)} dead unit{'s' * (len(units) > 1)} in {layer or 'the module'} ({listed(units)})"
            found.append((what, "raise their biases, draw them again, or leave them out"))
        return found

    def __str__(self) -> str:
        """Return one line for each finding."""
        return "\n".join(f"{what}: {sentence}" for what, sentence in self.lines())


def culprits(
    module: nn.Module,
    x: Inputs,
    y: Any = None,
    *,
    loss: str | Callable[[Tensor, Any], Tensor] = "mse",
    output: Callable[..., Tensor] | None = None,
    mode: str | None = None,
    memory: float = 4.0,
    most: int = 5,
) -> Culprits:
    r"""Return the samples, outputs and units that carry the smallest eigenvalue of the matrix of a loss.

    Samples i and j have the same rows in the Jacobian J if and only if the trace of
    :math:`K_{ii} + K_{jj} - 2 K_{ij}` is zero, which is the squared distance of these rows: equal samples are found
    whatever the network, and so are samples that it cannot tell apart.

    Parameters
    ----------
    module, x, y, loss, output, mode, memory
        as for :func:`gnlib.diagnosis.report`
    most
        how many samples, outputs and pairs to name

    Raises
    ------
    TypeError, ValueError
        As :func:`gnlib.diagnosis.report`.

    Examples
    --------
    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [2.0, 1.0]])
    >>> found = culprits(torch.nn.Linear(2, 1), x, most=2)
    >>> print(found.equal_samples[0])
    0 and 2 are equal
    """
    if most < 1:
        raise ValueError(f"most is {most}; a positive number was expected.")
    return culprits_of(Measured(module, x, y, loss=loss, output=output, mode=mode, memory=memory), most)


def culprits_of(measured: Measured, most: int = 5) -> Culprits:
    """Return the culprits of a network that has been measured."""
    n, k = measured.outputs.shape
    low = _low_end(measured)
    samples, outputs = low.sum(1), low.sum(0)
    gram = measured.gram.view(n, k, n, k)
    spread = (measured.outputs - measured.outputs.mean(0)).abs().amax(0)
    size = torch.einsum("iaia->a", gram)
    return Culprits(
        _largest(samples, most),
        _largest(outputs, most),
        _pairs(torch.einsum("iaja->ij", gram), most),
        _pairs(torch.einsum("iaib->ab", gram), most),
        _indices(spread <= EQUAL * measured.outputs.abs().amax()) if n > 1 else (),
        _indices(size <= EQUAL**2 * size.amax()),
        {
            name: _indices(~part.alive)
            for name, part in measured.parts.items()
            if part.alive is not None and not part.alive.all()
        },
    )


def _low_end(measured: Measured) -> Float[Tensor, "n k"]:
    """Return the share of each output on each sample in the eigenvectors at the low end."""
    _, vectors = measured.spectrum
    zeros = len(vectors) - measured.rank
    low = vectors[:, : max(zeros, 1)]
    n, _, r = measured.root.shape
    # in the outputs, where a column of the root stands for a mixture of them
    mixed = measured.root @ low.view(n, r, -1)
    return mixed.square().sum(2) / mixed.square().sum()


def _pairs(gram: Float[Tensor, "m m"], most: int) -> tuple[Pair, ...]:
    """Return pairs that are much closer than usual, from the inner products of their derivatives."""
    m = len(gram)
    if m < 3:  # of two, no distance is usual
        return ()
    own = gram.diagonal()
    squares = (own[:, None] + own - 2 * gram).clamp_min(0)
    first, second = torch.triu_indices(m, m, 1, device=gram.device)
    distances = squares[first, second].sqrt()
    usual = distances.median()
    floor = EQUAL * own.amax().sqrt()
    chosen = (distances <= (NEAR * usual).clamp_min(floor)).nonzero()[:, 0]
    chosen = chosen[distances[chosen].argsort(stable=True)][:most]
    found = []
    for i in chosen.tolist():
        distance = 0.0 if distances[i] <= floor else (distances[i] / usual).item()
        found.append(Pair(int(first[i]), int(second[i]), distance))
    return tuple(found)


def _largest(shares: Float[Tensor, " m"], most: int) -> tuple[tuple[int, float], ...]:
    chosen = shares.argsort(descending=True, stable=True)[:most].tolist()
    return tuple((i, shares[i].item()) for i in chosen)


def _indices(mask: Tensor) -> tuple[int, ...]:
    return tuple(mask.nonzero()[:, 0].tolist())
