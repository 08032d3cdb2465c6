"""Passes through networks where they stand: outputs, and products with the Jacobian and the Gram matrix."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad

from gnlib.jacobian.network import Factors, Network, count_rows
from gnlib.operators import SymmetricOperator
from gnlib.refused import Refused


def replace_parameters(networks: Sequence[Network], parameters: Factors) -> list[Network]:
    """Return networks with other parameters, which have not been tried there."""
    return [replace(network, parameters=parameters, y=None) for network in networks]


def freeze_all_but(networks: Sequence[Network], names: Collection[str]) -> list[Network]:
    """Return networks of which no other parameters than these are differentiated by."""

    def split(network: Network) -> Network:
        moving = {name: p for name, p in network.parameters.items() if name in names}
        frozen = {name: p for name, p in network.parameters.items() if name not in names}
        return replace(network, parameters=moving, frozen=network.frozen | frozen, structure=None)

    return [split(network) for network in networks]


@torch.inference_mode(False)
@torch.no_grad()
def outputs_of(networks: Sequence[Network], memory: float) -> Float[Tensor, "n k"]:
    """Return the outputs on all samples."""
    outputs = []
    for network in networks:
        if network.y is not None:
            outputs.append(network.y)
            continue
        with network.as_template():
            outputs += [network.evaluate(network.parameters, x) for x in network.batches(memory)]
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
    return torch.cat([_along(network, x, direction) for network in networks for x in network.batches(memory)])


def _along(network: Network, x: Tensor, direction: Factors) -> Float[Tensor, "b k"]:
    """Return how the outputs on some samples change: by a backward pass through a backward pass, or a forward one.

    Some kernels have no forward derivative, and some no second one.
    """
    with network.as_template(), torch.enable_grad():
        leaves = {name: p.detach().requires_grad_() for name, p in network.parameters.items()}
        try:
            y = network(leaves, x)
            weights = torch.zeros_like(y, requires_grad=True)
            kept = dict(create_graph=True, allow_unused=True, materialize_grads=True)
            gradients = torch.autograd.grad(y, list(leaves.values()), weights, **kept)
            along = [(g * direction[name]).sum() for name, g in zip(leaves, gradients, strict=True)]
            return torch.autograd.grad(torch.stack(along).sum(), weights)[0]
        except RuntimeError as error:
            if "not implemented" not in str(error):
                raise
            with forward_ad.dual_level(), suppress(NotImplementedError):
                duals = {name: forward_ad.make_dual(leaf, direction[name]) for name, leaf in leaves.items()}
                return forward_ad.unpack_dual(network(duals, x)).tangent.detach()
            raise Refused(
                "no-gradient",
                f"A product with the Jacobian cannot be had: {error} Take the Gram matrix or both ends of the "
                "spectrum, which are made of gradients.",
            ) from error


class GramOperator(SymmetricOperator):
    r"""The matrix :math:`\frac1n R^\top J J^\top R` of networks, one for each batch.

    Row `i * r + a` belongs to column a of the root of sample i, such as one of the second derivative of a loss; without
    a root it is :math:`\frac1n J J^\top`, of size `nk`. A product takes a backward pass, for the gradient of the
    weighted outputs, and two more to get from there to the change of the outputs along that gradient.
    """

    def __init__(self, networks: Sequence[Network], memory: float, root: Float[Tensor, "n k r"] | None = None) -> None:
        size = count_rows(networks) if root is None else len(root) * root.shape[2]
        super().__init__(size, torch.float64, networks[0].x.device)
        self._networks, self._memory, self._root = networks, memory, root

    def matmul(self, v: Float[Tensor, " r *columns"]) -> Float[Tensor, " r *columns"]:  # noqa: D102
        columns = v.to(self.dtype).reshape(len(v), -1)
        return torch.stack([self._product(column) for column in columns.unbind(1)], 1).view(v.shape)

    def _product(self, v: Float[Tensor, " r"]) -> Float[Tensor, " r"]:
        root, networks = self._root, self._networks
        weights = v.view(-1, networks[0].outputs) if root is None else (root @ v.view(len(root), -1, 1))[..., 0]
        change = jvp(networks, vjp(networks, self._memory)(weights), self._memory)
        return change.flatten() if root is None else (root.mT @ change[..., None]).flatten()
