"""The share of each layer in the trace and in both ends of the spectrum."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gnlib.jacobian.passes import vjp
from gnlib.plain import as_dict
from gnlib.problem import Problem
from gnlib.text import as_html, as_text


class Share(NamedTuple):
    r"""The share of a layer.

    Attributes
    ----------
    layer, parameters
        its name in the module, and how many parameters it has
    trace, largest, smallest
        its share of the trace, of the largest and of the smallest non-zero eigenvalue
    difference
        of these two: by so much of a per cent the condition number grows when the part of this layer grows by one per
        cent, that is when its learning rate does
    """

    layer: str
    parameters: int
    trace: float
    largest: float
    smallest: float

    @property
    def difference(self) -> float:
        """The share of the largest eigenvalue less that of the smallest."""
        return self.largest - self.smallest


@dataclass(frozen=True)
class Shares:
    """The shares of all layers, which add up to 1, and to 0 for the difference."""

    layers: tuple[Share, ...]

    to_dict = as_dict

    def rows(self) -> Sequence[Sequence[str]]:
        """Return a heading and one row for each layer."""
        rows = [("layer", "parameters", "trace", "largest", "smallest", "difference")]
        for share in self.layers:
            ends = f"{share.trace:.1%}", f"{share.largest:.1%}", f"{share.smallest:.1%}", f"{share.difference:+.1%}"
            rows.append((share.layer or "(module)", f"{share.parameters}", *ends))
        return rows

    def __str__(self) -> str:
        """Return a table."""
        return as_text(self.rows())

    def _repr_html_(self) -> str:
        return as_html(self.rows())


def shares_of(problem: Problem) -> Shares:
    r"""Return the shares of the layers of a network.

    Layer l has the share :math:`\lVert J_\ell^\top R v \rVert^2 / (n \lambda)` of the eigenvalue of v: a backward pass
    an end, and no matrix of a layer.
    """
    (_, vectors), (n, k, r) = problem.spectrum, problem.root.shape
    product = vjp(problem.networks, problem.memory)

    def end(column: int) -> dict[str, float]:
        gradients = product((problem.root @ vectors[:, column].reshape(n, r, 1)).reshape(n, k))
        return by_layer(problem, {name: g.square().sum().item() for name, g in gradients.items()})

    trace = by_layer(problem, problem.layered[1])
    largest, smallest = end(-1), end(-problem.rank)
    sizes: dict[str, int] = defaultdict(int)
    for name, parameter in problem.networks[0].parameters.items():
        sizes[problem.layer_of(name)] += parameter.numel()
    layers = (
        Share(layer=name, parameters=size, trace=trace[name], largest=largest[name], smallest=smallest[name])
        for name, size in sizes.items()
    )
    return Shares(tuple(layers))


def by_layer(problem: Problem, values: Mapping[str, float]) -> dict[str, float]:
    """Return values of parameters as shares of layers."""
    sums: dict[str, float] = defaultdict(float)
    for name, value in values.items():
        sums[problem.layer_of(name)] += value / sum(values.values())
    return sums
