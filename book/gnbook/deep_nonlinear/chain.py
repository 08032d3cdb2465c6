r"""Chains of layers, and the features and derivatives that make up their tangent kernel.

Layer l of a chain applies a weight matrix to the features :math:`F_l`, one row a sample, and the outputs of sample i
depend on the outputs of the layer by the derivatives :math:`G_{li}`. Nothing else enters the kernel:

.. math:: \widehat G_{ij} = \frac1n \sum_l (F_l F_l^\top)_{ij}\, G_{li} G_{lj}^\top .
"""

import copy
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnlib.checks import as_outputs, as_samples
from gnlib.linear.network import linear_weights


class Skip(nn.Module):
    r"""A branch with a skip around it, :math:`x \mapsto x + \beta f(x)`."""

    def __init__(self, branch: nn.Module, factor: float = 1.0) -> None:
        super().__init__()
        self.branch, self.factor = branch, factor

    def forward(self, x: Float[Tensor, "n m"]) -> Float[Tensor, "n m"]:
        """Return the sum of the skip and the branch."""
        return x + self.factor * self.branch(x.clone())  # an activation in place would change the values that skip it


class Layer(NamedTuple):
    """The features, the last of them one for a bias, and the derivatives of the outputs by the outputs of the layer."""

    features: Float[Tensor, "n m"]
    derivatives: Float[Tensor, "n k w"]

    @property
    def blocks(self) -> Float[Tensor, "n k k"]:
        r""":math:`G_{li} G_{li}^\top` for each sample i."""
        return self.derivatives @ self.derivatives.mT


def random_chain(
    widths: Sequence[int], activation: Callable[[], nn.Module], *, gain: float = 1.0, generator: torch.Generator
) -> nn.Sequential:
    """Draw a chain without biases, in double precision, with independent normal weights of deviation `gain / sqrt(in)`.

    `widths` are `[d, m_1, ..., k]`.
    """
    modules: list[nn.Module] = []
    for weight in linear_weights(widths, generator=generator):
        out, fan_in = weight.shape
        linear = nn.Linear(fan_in, out, bias=False, device="meta")
        linear.weight = nn.Parameter(gain * weight)
        modules += [linear, activation()]
    return nn.Sequential(*modules[:-1])


def layers_of(network: nn.Module, x: Float[Tensor, "n d"]) -> list[Layer]:
    """Return the features and derivatives of each layer of weights, by one forward and one backward pass.

    The network is an nn.Sequential of nn.Linear, Skip, activations and normalisations without weights, and ends in a
    layer of weights, which has the identity for derivatives. Everything is in double precision, and the network is left
    as it is.
    """
    x, network = as_samples(x), copy.deepcopy(network).double()
    for module in network.modules():
        if getattr(module, "inplace", False):
            module.inplace = False  # or it would overwrite the output of the layer before it
    features, products = [], []

    def record(linear: nn.Linear, inputs: tuple[Tensor], product: Tensor) -> None:
        ones = [product.new_ones(len(product), 1)] * (linear.bias is not None)
        features.append(torch.cat([inputs[0], *ones], 1).detach())
        products.append(product)

    layers = [module for module in network.modules() if isinstance(module, nn.Linear)]  # as a chain applies them
    if {*map(id, network.parameters())} != {id(p) for layer in layers for p in layer.parameters()}:
        raise ValueError("A module other than nn.Linear has weights, which these bounds do not cover.")
    for linear in layers:
        linear.register_forward_hook(record)
    with torch.enable_grad():
        outputs = as_outputs(network(x), len(x))
        k = outputs.shape[1]
        each = torch.eye(k, dtype=x.dtype, device=x.device)[:, None].expand(k, *outputs.shape)
        derivatives = torch.autograd.grad(outputs, products, each, is_grads_batched=True)
    return [Layer(f, g.transpose(0, 1)) for f, g in zip(features, derivatives, strict=True)]


def kernel(layers: Sequence[Layer]) -> Float[Tensor, "nk nk"]:
    r"""Return the Gauss-Newton matrix in its Gram form, :math:`\frac1n J J^\top`, sample-major."""
    n, k, _ = layers[0].derivatives.shape
    total = layers[0].features.new_zeros(n, k, n, k)
    for features, derivatives in layers:
        flat = derivatives.flatten(0, 1)
        total += (features @ features.mT)[:, None, :, None] * (flat @ flat.mT).view_as(total)
    return total.view(n * k, n * k) / n
