"""Remarks on what is unusual about a network, beside its spectrum."""

from collections.abc import Iterator

import torch

from gnlib.diagnosis.changes import fresh_norms, off_scale
from gnlib.jacobian.intercept import RequestedPrecisions
from gnlib.jacobian.network import Network
from gnlib.losses import CrossEntropy
from gnlib.problem import Problem
from gnlib.text import listed


def remarks_on(problem: Problem) -> Iterator[tuple[str, str]]:
    """Yield headings, and what they mean."""
    network, module = problem.networks[0], problem.module
    if network.coupled:
        yield "outputs depend on the other samples", "the matrix is that of this batch, normalisation included"
    elif fresh := fresh_norms(module):
        yield f"{len(fresh)} batch normalisations are fresh", "they do nothing yet: pass the batch, or mode='train'"
    if sizes := off_scale(module):
        least, most = min(sizes.values()), max(sizes.values())
        size = f"{least:.2g}" if least == most else f"{least:.2g} to {most:.2g}"
        names = listed([name or "the module" for name in sizes])
        yield f"weights of {names} are {size} / sqrt(inputs)", "usual are 0.6 (torch) to 1.4 (Kaiming)"
    if lower := _casts(network):
        named = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in lower))
        yield f"the forward pass casts to {named}", "training rounds there; what stands here is in double precision"
    y = problem.outputs
    if isinstance(problem.loss, CrossEntropy) and y.amin() >= 0 and (y.sum(1) - 1).abs().max() < 1e-6:
        yield "the outputs are probabilities", "cross_entropy takes a softmax of them again: pass what comes before it"


@torch.no_grad()
def _casts(network: Network) -> set[torch.dtype]:
    """Return the precisions below its own that the forward pass of a module asks for."""
    own = next(network.module.parameters()).dtype
    with network.as_template(), RequestedPrecisions() as requested:
        network(network.parameters, network.x if network.coupled else network.x[:1])
    return {dtype for dtype in requested.dtypes if torch.finfo(dtype).eps > torch.finfo(own).eps}
