"""What is unusual about a network, each in one sentence."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gnlib.advice.layers import UNITS
from gnlib.jacobian.network import Network
from gnlib.losses import CrossEntropy
from gnlib.problem import Problem
from gnlib.text import listed

USUAL = 0.25, 3.5  # times 1 / sqrt(inputs), the standard deviation of weights: torch draws 0.6 of it, Kaiming 1.4


def remarks_on(problem: Problem) -> Iterator[tuple[str, str]]:
    """Yield a heading and a sentence on whatever is unusual about a network."""
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


def fresh_norms(module: nn.Module) -> list[_BatchNorm]:
    """Return the batch normalisations whose running statistics are those of a new one."""

    def is_fresh(norm: _BatchNorm) -> bool:
        mean, variance = norm.running_mean, norm.running_var
        return mean is not None and variance is not None and not mean.any() and bool((variance == 1).all())

    return [m for m in module.modules() if isinstance(m, _BatchNorm) and is_fresh(m)]


def off_scale(module: nn.Module) -> dict[str, float]:
    """Return the layers whose weights are not of a usual size: the root mean square, times the root of the inputs."""
    sizes = {}
    for name, layer in module.named_modules():
        weight = _weight(layer)
        if weight is not None and weight.numel() > 1:
            size = weight.detach().double().square().mean().sqrt().item() * math.sqrt(weight[0].numel())
            if not USUAL[0] <= size <= USUAL[1]:
                sizes[name] = size
    return sizes


def _weight(layer: nn.Module) -> Tensor | None:
    name = "in_proj_weight" if isinstance(layer, nn.MultiheadAttention) else "weight"
    weight = getattr(layer, name, None) if isinstance(layer, (*UNITS, nn.MultiheadAttention)) else None
    return weight if isinstance(weight, Tensor) else None


@torch.no_grad()
def _casts(network: Network) -> set[torch.dtype]:
    """Return the precisions below its own that the forward pass of a module asks for."""
    own = next(network.module.parameters()).dtype
    with network.as_template() as precision:
        network(network.parameters, network.x if network.coupled else network.x[:1])
    return {dtype for dtype in precision.requested if torch.finfo(dtype).eps > torch.finfo(own).eps}
