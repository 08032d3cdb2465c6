"""Passes through networks where they stand: outputs, vector-Jacobian and Jacobian-vector products."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.jacobian.network import Factors, Network


def replace_parameters(networks: Sequence[Network], parameters: Factors) -> list[Network]:
    """Return networks with other parameters, which have not been tried there."""
    return [replace(network, parameters=parameters) for network in networks]


def freeze_all_but(networks: Sequence[Network], names: Collection[str]) -> list[Network]:
    """Return networks of which no other parameters than these are differentiated by."""

    def split(network: Network) -> Network:
        moving = {name: p for name, p in network.parameters.items() if name in names}
        frozen = {name: p for name, p in network.parameters.items() if name not in names}
        return replace(network, parameters=moving, frozen=network.frozen | frozen)

    return [split(network) for network in networks]


@torch.inference_mode(False)
@torch.no_grad()
def outputs_of(networks: Sequence[Network], memory: float) -> Float[Tensor, "n k"]:
    """Return the outputs on all samples."""
    outputs = []
    for network in networks:
        with network.as_template():
            outputs += [network(network.parameters, x) for x in network.batches(memory)]
    return torch.cat(outputs)


def vjp(networks: Sequence[Network], memory: float) -> Callable[[Float[Tensor, "n k"]], Factors]:
    r"""Return :math:`w \mapsto \frac1n J^\top w`, by parameter; one forward pass serves all w if a batch holds all."""
    batches = [(network, x) for network in networks for x in network.batches(memory)]
    kept = _graph(*batches[0]) if len(batches) == 1 else None

    @torch.inference_mode(False)
    @torch.no_grad()
    def product(weights: Float[Tensor, "n k"]) -> Factors:
        total = {name: torch.zeros_like(p) for name, p in networks[0].parameters.items()}
        parts = (weights / len(weights)).split([len(x) for _, x in batches])
        for (network, x), part in zip(batches, parts, strict=True):
            leaves, y = kept or _graph(network, x)
            with network.as_template(), torch.enable_grad():
                gradients = network.vjp(leaves, y, part) if y.requires_grad else ()
            for name, gradient in zip(total, gradients, strict=False):
                total[name] += gradient
        return total

    return product


@torch.inference_mode(False)
def _graph(network: Network, x: Tensor) -> tuple[Factors, Float[Tensor, "b k"]]:
    """Return fresh leaves in the place of the parameters, and outputs that depend on them."""
    with network.as_template(), torch.enable_grad():
        leaves = {name: p.detach().requires_grad_() for name, p in network.parameters.items()}
        return leaves, network(leaves, x)


@torch.inference_mode(False)
@torch.no_grad()
def jvp(networks: Sequence[Network], direction: Factors, memory: float) -> Float[Tensor, "n k"]:
    """Return how the outputs change along a direction, to first order: J times it."""
    products: list[Tensor] = []
    for network in networks:
        for x in network.batches(memory):
            # a backward pass through a backward pass, for kernels that have no forward derivative
            with network.as_template(), torch.enable_grad():
                leaves = {name: p.detach().requires_grad_() for name, p in network.parameters.items()}
                y = network(leaves, x)
                weights = torch.zeros_like(y, requires_grad=True)
                kept = dict(create_graph=True, allow_unused=True, materialize_grads=True)
                gradients = torch.autograd.grad(y, list(leaves.values()), weights, **kept)
                along = [(g * direction[name]).sum() for name, g in zip(leaves, gradients, strict=True)]
                products += torch.autograd.grad(torch.stack(along).sum(), weights)
    return torch.cat(products)
