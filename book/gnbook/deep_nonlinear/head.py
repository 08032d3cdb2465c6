"""A lower bound of the smallest eigenvalue from the last layer alone, whatever the network below it is."""

import copy

import torch
from torch import Tensor, nn

from gnbook.shared.extremes import resolved_squares
from gnlib.checks import as_outputs


def head_floor(network: nn.Module, x: Tensor, head: nn.Linear) -> float:
    r"""Return a lower bound of the smallest eigenvalue of the Gauss-Newton matrix of any network with a linear head.

    It is that of :math:`\frac1n (\Phi \Phi^\top + \mathbf 1 \mathbf 1^\top)`, where :math:`\Phi` holds the inputs of
    the head, one row a sample, and the ones are for its bias (claim "Linear head").

    Samples lie along the first axis; the weights of the head train, and no other weights may be those of the head.
    """
    network, head = copy.deepcopy((network, head))
    seen: list[tuple[Tensor, Tensor]] = []
    head.register_forward_hook(lambda _, inputs, product: seen.append((inputs[0], product)))
    with torch.no_grad():
        outputs = as_outputs(network.double()(x.double() if x.is_floating_point() else x), len(x))
    if len(seen) != 1 or seen[0][0].ndim != 2 or not torch.equal(seen[0][1], outputs):
        raise ValueError("The outputs of the network are not those of the head, applied once to one row a sample.")
    ones = [outputs.new_ones(len(x), 1)] * (head.bias is not None)
    return resolved_squares(torch.cat([seen[0][0], *ones], 1).mT)[1].item() / len(x)
