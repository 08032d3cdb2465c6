r"""The affine map that any piecewise linear torch module is around a point, by automatic differentiation.

The point is an input or the weights of one layer; the same few lines serve both. What the kinks are is read off the
module, :math:`\max(t, \eta t)` and nothing else; whether they are all there are is checked at points of the region.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnbook.shared.piecewise_linear import Piece, kink_of, oriented
from gnlib.checks import as_float64
from gnlib.jacobian.network import Network
from gnlib.jacobian.trial import network_of

TRIES = 4  # random directions in which the affine map is compared with the module
SAME = 1e-9  # relative difference up to which they are the same


def local_affine(module: nn.Module, x: Float[Tensor, "*sample"]) -> Piece:
    r"""Return the affine map that a module is in the region of one input, by its Jacobian there.

    Activations have to be *modules*: ReLU, LeakyReLU or :class:`gnbook.shared.piecewise_linear.Kink`; batch
    normalisation and dropout in eval mode. The sample has no axis for the batch, and the piece is about the flattened
    sample. A point on the border of a region, where the map is not unique, is refused.
    """
    x = as_float64(x, "x")
    network = network_of(module, x[None])
    return _piece(module, network, lambda point: network.call(network.tensors({}), point.view_as(x)[None]), x.flatten())


def local_affine_in_weights(module: nn.Module, name: str, x: Float[Tensor, "n ..."]) -> Piece:
    r"""Return the affine map from one parameter of a module to its outputs on a batch, and its region.

    The matrix is the block of the Jacobian that belongs to this parameter, so that `matrix.T @ matrix / n` is its
    diagonal block of the Gauss-Newton matrix. It has `nk` rows, and the region a row for each kink and sample. A
    parameter that is used more than once, in which the outputs are not affine, is refused.
    """
    network = network_of(module, x)
    w = network.parameters[name]
    return _piece(
        module, network, lambda p: network.call(network.tensors({name: p.view_as(w)}), network.x), w.flatten()
    )


def _piece(
    module: nn.Module, network: Network, outputs: Callable[[Tensor], Tensor], point: Float[Tensor, " d"]
) -> Piece:
    values, kinks = [], []

    def record(part: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        values.append(inputs[0].flatten())
        kinks.append(kink_of(part))
        return (inputs[0].clone(),)  # an activation may work in place

    def everything(point: Tensor) -> Tensor:
        values.clear()
        kinks.clear()
        return torch.cat([outputs(point).flatten(), *values])

    handles = [m.register_forward_pre_hook(record) for m in module.modules() if kink_of(m) is not None]
    try:
        with network.as_template():
            whole = everything(point)
            jacobian = torch.autograd.functional.jacobian(everything, point, vectorize=True)
    finally:
        for handle in handles:
            handle.remove()
    sizes = [len(v) for v in values]
    constants = whole - jacobian @ point
    (matrix, *normals), (offset, *levels), (_, *at) = (
        part.detach().split([len(whole) - sum(sizes), *sizes]) for part in (jacobian, constants, whole)
    )
    slopes = tuple(torch.ones_like(v).where(v > 0, kink) for v, kink in zip(at, kinks, strict=True))
    bent = [i for i, kink in enumerate(kinks) if kink != 1]
    walls = torch.cat([matrix[:0], *(normals[i] for i in bent)]), torch.cat([offset[:0], *(levels[i] for i in bent)])
    piece = Piece(matrix, offset, slopes, *oriented(*walls, point))
    with torch.no_grad(), network.as_template():
        _compare(piece, lambda p: outputs(p).flatten(), point)
    return piece


def _compare(piece: Piece, outputs: Callable[[Tensor], Tensor], point: Float[Tensor, " d"]) -> None:
    """Compare the affine map with the module at other points of its region."""
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(TRIES, len(point), generator=generator, dtype=point.dtype, device=generator.device)
    for direction in directions.to(point.device):
        other = point + direction * min(piece.exit(point, direction) / 2, 1 + point.norm().item())
        scale = piece.matrix.abs() @ other.abs() + piece.offset.abs()
        if ((piece(other) - outputs(other)).abs() > SAME * scale.max()).any():
            raise ValueError(
                "The outputs are not affine in the region that the ReLU, LeakyReLU and Kink modules bound: something "
                "else in the forward pass bends them, or a parameter is used more than once."
            )
