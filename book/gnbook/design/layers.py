"""The tangent kernel of a homogeneous network as a sum over its layers, each with a weight that gains set."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnlib import GaussNewton

FEW = 4  # samples on which degrees are measured
OFF = 1e-5  # by which a Jacobian may differ from its power of two
NOTHING = 1e-9  # share of the whole Jacobian below which a part is rounding, as of a bias before batch normalisation
FLOOR = 1e-3  # of the root mean square of a part of P, below which nothing is divided by


@dataclass(frozen=True, eq=False)
class Layers:
    r"""A kernel :math:`K(z) = \sum_i e^{a_i \cdot z} K_i` under gains :math:`g = e^z`, one for each layer.

    There is a part for each parameter: :math:`K_i = \frac1n J_i J_i^\top`, or :math:`\frac1n J_i P_i^{-1} J_i^\top`.
    How far it moves is in `steps`, :math:`\frac1n J_i J_i^\top` or :math:`\frac1n J_i P_i^{-2} J_i^\top`, with
    exponents of their own. `sizes` are the spectral norms of the parameters, as matrices with a row for each output;
    `own` is 1 where a parameter has the gain of the layer; `degrees` are those of the outputs in the weights of each
    layer.
    """

    names: tuple[str, ...]
    parts: Float[Tensor, "parts nk nk"]
    exponents: Float[Tensor, "parts layers"]
    steps: Float[Tensor, "parts nk nk"]
    steps_exponents: Float[Tensor, "parts layers"]
    sizes: Float[Tensor, " parts"]
    own: Float[Tensor, "parts layers"]
    outputs: Float[Tensor, "n k"]
    degrees: Float[Tensor, " layers"]

    def kernel(self, z: Float[Tensor, " layers"]) -> Float[Tensor, "nk nk"]:
        """Return the kernel under gains, whose logarithms are given."""
        return torch.einsum("i,ijk->jk", (self.exponents @ z.to(self.parts)).exp(), self.parts)

    def moved(self, z: Float[Tensor, " layers"], c: Float[Tensor, " nk"]) -> Float[Tensor, " parts"]:
        r"""Return how far each parameter moves, squared, over the square of its size, for a sum c of gradients.

        The displacement is :math:`-\frac1n P^{-1} J^\top c`. A parameter that is zero does not count.
        """
        z = z.to(self.parts)
        squares = (self.steps_exponents @ z).exp() * torch.einsum("ijk,j,k->i", self.steps, c, c) / len(self.outputs)
        there = self.sizes > 0
        return torch.where(there, squares / torch.where(there, self.sizes, 1) ** 2, 0) * (-2 * self.own @ z).exp()

    def scaled(self, z: Float[Tensor, " layers"]) -> Float[Tensor, "n k"]:
        """Return the outputs under gains."""
        return (self.degrees @ z.to(self.parts)).exp() * self.outputs


def weights_of(network: nn.Module) -> dict[str, nn.Parameter]:
    """Return the weights that have gains, those of linear layers and convolutions, by name."""
    layers = {name: m for name, m in network.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)}
    return {f"{name}.weight".removeprefix("."): layer.weight for name, layer in layers.items()}


def layers_of(network: nn.Module, x: Float[Tensor, "n ..."], *, preconditioned: bool = False) -> Layers:
    """Return the parts of the kernel of a network that is homogeneous in the weights of each layer.

    The network is in double precision. Its degrees are measured: each layer's weights are doubled in turn, and all
    derivatives have to be multiplied by a power of two; a network with tanh or with branches beside a skip is refused.
    Biases have to be zero, or behind all that has gains. If `preconditioned`, it is by the root P of the diagonal of
    the Gauss-Newton matrix, in each parameter not below 1e-3 of its root mean square. See `claims-design`, "Sum over
    layers", "Biases at zero" and "Gains and Adam's kernel".
    """
    weights, n = weights_of(network), len(x)
    few = x[:FEW]
    before, first = jacobian_of(network, few), network(few).detach()
    nothing = NOTHING * torch.stack([jacobian.norm() for jacobian in before.values()]).norm().item()
    powers, degrees = [], []
    for name in weights:
        doubled = copy.deepcopy(network)
        with torch.no_grad():
            doubled.get_parameter(name).mul_(2)
        after = jacobian_of(doubled, few)
        powers.append([_power(before[other], after[other], name, nothing) for other in before])
        degrees.append(_power(first, doubled(few).detach(), name, 0.0))
    exponents = x.new_tensor(powers).mT
    parts, steps = [], []
    for jacobian in jacobian_of(network, x).values():
        inverse = jacobian.new_ones(jacobian.shape[1])
        if preconditioned:
            inverse = 1 / floored_roots(jacobian, n)
        parts.append((jacobian * inverse) @ jacobian.mT / n)
        steps.append((jacobian * inverse.square()) @ jacobian.mT / n)
    named = dict(network.named_parameters())
    sizes = [torch.linalg.matrix_norm(p.detach().reshape(len(p), -1), 2) for p in named.values()]
    return Layers(
        names=tuple(weights),
        parts=torch.stack(parts),
        exponents=exponents if preconditioned else 2 * exponents,
        steps=torch.stack(steps),
        steps_exponents=0 * exponents if preconditioned else 2 * exponents,
        sizes=torch.stack(sizes),
        own=x.new_tensor([[float(name == other) for other in weights] for name in named]),
        outputs=network(x).detach(),
        degrees=x.new_tensor(degrees),
    )


def jacobian_of(network: nn.Module, x: Float[Tensor, "n ..."]) -> Mapping[str, Float[Tensor, "nk _"]]:
    """Return the Jacobian of all outputs on all samples, by parameter."""
    sizes = {name: p.numel() for name, p in network.named_parameters()}
    columns = torch.cat([*GaussNewton(network, x, mode="train").jacobian()], 1)
    found = dict(zip(reversed(sizes), columns.split([*reversed(sizes.values())], 1), strict=True))
    return {name: found[name] for name in sizes}


def floored_roots(jacobian: Float[Tensor, "nk p"], n: int) -> Float[Tensor, " p"]:
    """Return the root of a parameter's part of the diagonal of the Gauss-Newton matrix, not below 1e-3 of its size.

    The size is the root mean square; where all is zero, the root is taken for one.
    """
    squares = jacobian.square().sum(0) / n
    return squares.clamp_min(FLOOR**2 * squares.mean() or 1).sqrt()


def _power(before: Tensor, after: Tensor, name: str, nothing: float) -> float:
    """Return the whole number e for which the one is 2^e times the other; 0 where there is nothing."""
    size, grown = before.norm().item(), after.norm().item()
    if size <= nothing:
        return 0.0
    power = round(math.log2(grown / size)) if grown else 0
    if not (after - 2.0**power * before).norm() <= OFF * grown:
        raise ValueError(
            f"The network is not homogeneous in {name}: doubled weights do not multiply all derivatives by a power of "
            "two. Chains of layers with ReLUs, leaky ReLUs or normalisations, and with biases of zero, were expected; "
            "not tanh, and no branch beside a skip."
        )
    return float(power)
