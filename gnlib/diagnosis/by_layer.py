"""Where a condition number comes from: the share of each layer in the trace and in both ends of the spectrum."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor, nn

from gnlib.diagnosis.inputs import Inputs
from gnlib.diagnosis.measured import Measured, through
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

    def rows(self) -> Sequence[Sequence[str]]:
        """Return a heading and one row for each layer."""
        found = [("layer", "parameters", "trace", "largest", "smallest", "difference")]
        for share in self.layers:
            ends = f"{share.trace:.1%}", f"{share.largest:.1%}", f"{share.smallest:.1%}", f"{share.difference:+.1%}"
            found.append((share.layer or "(module)", f"{share.parameters}", *ends))
        return found

    def __str__(self) -> str:
        """Return a table."""
        return as_text(self.rows())

    def _repr_html_(self) -> str:
        return as_html(self.rows())


def by_layer(
    module: nn.Module,
    x: Inputs,
    y: Any = None,
    *,
    loss: str | Callable[[Tensor, Any], Tensor] = "mse",
    output: Callable[..., Tensor] | None = None,
    mode: str | None = None,
    memory: float = 4.0,
) -> Shares:
    r"""Return what each layer has of the trace and of both ends of the spectrum.

    The matrix is a sum over the parameters, :math:`K = \sum_\ell K_\ell`, and so is an eigenvalue with the
    eigenvector v, :math:`\lambda = \sum_\ell v^\top K_\ell v`: the shares are exact and add up. A layer with much of
    the largest eigenvalue and little of the smallest wants a smaller learning rate, or smaller inputs; one with much
    of the smallest a larger one.

    Parameters
    ----------
    module, x, y, loss, output, mode, memory
        as for :func:`gnlib.diagnosis.report`

    Raises
    ------
    TypeError, ValueError
        As :func:`gnlib.diagnosis.report`.

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 1, bias=False), torch.nn.Linear(1, 1, bias=False))
    >>> _ = torch.nn.init.constant_(net[0].weight, 1.0), torch.nn.init.constant_(net[1].weight, 2.0)
    >>> print(by_layer(net, torch.tensor([[1.0, 0.0], [0.0, 1.0]])))
    layer  parameters  trace  largest  smallest  difference
    0      2           80.0%  66.7%    100.0%    -33.3%
    1      1           20.0%  33.3%    0.0%      +33.3%
    """
    return shares_of(Measured(module, x, y, loss=loss, output=output, mode=mode, memory=memory))


def shares_of(measured: Measured) -> Shares:
    """Return the shares of the layers of a network that has been measured."""
    values, vectors = measured.spectrum
    trace = measured.matrix.trace()
    ends = {"largest": -1, "smallest": -measured.rank}
    found = []
    for name, part in measured.parts.items():
        gram = through(measured.root, part.gram)
        both = {end: (vectors[:, i] @ gram @ vectors[:, i] / values[i]).item() for end, i in ends.items()}
        found.append(Share(name, part.parameters, (gram.trace() / trace).item(), **both))
    return Shares(tuple(found))
