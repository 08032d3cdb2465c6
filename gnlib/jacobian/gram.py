"""The Gauss-Newton matrix of any torch module, through its Jacobian, which is never held whole."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gnlib.files import progress
from gnlib.jacobian.contraction import COLUMNS, TILE, Held, add_columns, write_columns
from gnlib.jacobian.cost import announced
from gnlib.jacobian.network import Factors, Network, networks_of
from gnlib.jacobian.plan import Group, Plan, check_memory, plan_of
from gnlib.jacobian.record import Structure, rows, structures_of


class NotFiniteError(ValueError):
    """The Jacobian of a network, or its product with itself, has entries that are not finite."""


def gauss_newton_gram(
    module: nn.Module,
    x: Tensor | Sequence[Tensor],
    *,
    output: Callable[..., Tensor] | None = None,
    mode: str | None = None,
    memory: float = 4.0,
) -> Float[Tensor, "nk nk"]:
    r"""Return the Gram matrix of the Jacobian of a network, :math:`\frac1n J J^\top`.

    J is the `nk x p` Jacobian of all outputs on all samples with respect to the parameters that require a gradient,
    with row `i * k + a` for output a of sample i. The matrix has the non-zero eigenvalues of the Gauss-Newton matrix
    :math:`\frac1n J^\top J`, and is computed in double precision whatever the precision of the module.

    The module is left as it is: its precision, mode, gradients, running statistics and the state of the random
    numbers.

    Parameters
    ----------
    module
        any module; masks, parametrisations, frozen and tied parameters mean what they mean in training
    x
        the data, samples along the first axis; integers, such as the numbers of tokens, are passed on as they are.
        A list of batches stands for all their samples; where the samples of a batch depend on each other, as with
        batch normalisation in training, each depends on those of its own batch
    output
        function of what the module returns that gives the `(n, k)` outputs, where these are not what it returns
    mode
        which function is meant: `"eval"` (running statistics, no dropout) or `"train"` (statistics of the batch);
        needed only if the module is in training mode and is another function there, as with batch normalisation,
        dropout or spectral normalisation.
        Where the outputs of a sample depend on the other samples, it is the function of the whole batch that is
        differentiated, which takes n times as long
    memory
        GiB that may be used beyond the module and the data, for the result of `8 (nk)^2` bytes among others. The less
        is left of it, the more often the network is differentiated

    Raises
    ------
    TypeError
        Something that is not a module, or not a tensor of real numbers.
    ValueError
        Parameters, data, outputs or derivatives that are not finite, outputs not of shape `(n, k)` or without a
        gradient, a random function, one that changes its parameters or depends on what a call leaves behind, one that
        computes in a lower precision out of sight, samples that depend on each other unless `mode="train"` or batch
        normalisation say so, an unknown mode, or too little memory.

    Notes
    -----
    Whether the function is random, and whether samples depend on each other, is tried on all samples, with the given
    parameters and with others near them. For the trial they are put through the network four times, together where
    that fits into `memory`, in parts otherwise. Then come a forward pass for each group of columns that fits, and k
    backward passes. A hook on a forward pass is called in each of them.

    Layers are known by the functions of torch that they call with a parameter: linear maps, convolutions, embeddings,
    scales and shifts of normalisations, and what attention is made of. Their gradients by a weight are products of
    features and gradients, from which their part of the matrix is made in the way that takes fewer operations
    (:func:`gnlib.jacobian.cost`). A parameter that is used in any other way as well is differentiated by itself.

    Samples are differentiated together by `torch.vmap`. A module that it cannot take (operations in place,
    control flow that depends on the data, recurrent layers, autograd functions of the old form) is differentiated
    sample by sample, which is right but slow. Casts in a forward pass are casts to double precision. Hooks of modules
    on gradients are left out, since they are no part of the function.

    References
    ----------
    R. Novak, J. Sohl-Dickstein, S. S. Schoenholz (2022), Fast finite width neural tangent kernel, ICML 39 (products of
    two Gram matrices, and when they pay).
    """
    check_memory(memory)
    return gram_of(networks_of(module, x, output, mode, memory), memory)


def tangent_kernel(
    module: nn.Module,
    x: Tensor | Sequence[Tensor],
    *,
    output: Callable[..., Tensor] | None = None,
    mode: str | None = None,
    memory: float = 4.0,
) -> Float[Tensor, "nk nk"]:
    r"""Return the tangent kernel matrix :math:`K = J J^\top` of a network on samples (Liu 2020, Eq. 1).

    J is the Jacobian of all outputs on all samples with respect to the parameters that require a gradient, with row
    `i * k + a` for output a of sample i. It is `n` times :func:`gnlib.jacobian.gauss_newton_gram`, and computed as
    such.

    Parameters
    ----------
    module, x, output, mode, memory
        as for :func:`gnlib.jacobian.gauss_newton_gram`

    Raises
    ------
    TypeError, ValueError
        As :func:`gnlib.jacobian.gauss_newton_gram`.

    References
    ----------
    C. Liu, L. Zhu, M. Belkin (2020), NeurIPS 33, Eq. 1.

    Examples
    --------
    >>> import torch
    >>> tangent_kernel(torch.nn.Linear(2, 1, bias=False), torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
    tensor([[1., 1.],
            [1., 2.]], dtype=torch.float64)
    """
    n = len(x) if isinstance(x, Tensor) else sum(len(batch) for batch in x)
    return gauss_newton_gram(module, x, output=output, mode=mode, memory=memory).mul_(n)


class LayerTrace(NamedTuple):
    r"""The part of a parameter in the Gram matrix of a loss, :math:`R^\top K R` with :math:`K = \frac1n J J^\top`.

    Attributes
    ----------
    trace
        the trace of :math:`R^\top K_\ell R`, where :math:`K_\ell` is made of the columns of J for this parameter alone
    alive
        for each row of the parameter, along its first axis, whether any of its columns of J has an entry that is not 0
    """

    trace: float
    alive: Bool[Tensor, " rows"]


def gram_of(networks: Sequence[Network], memory: float) -> Float[Tensor, "nk nk"]:
    """Return the Gram matrix of networks, one for each batch, that have been tried already."""
    return _accumulate(networks, memory, None)


def layered_gram(
    networks: Sequence[Network], memory: float, root: Float[Tensor, "n k r"]
) -> tuple[Float[Tensor, "nk nk"], dict[str, LayerTrace]]:
    r"""Return the Gram matrix K of networks and, by parameter, the trace of its part in :math:`R^\top K R`.

    It takes the memory of :func:`gram_of`. A weight and a bias whose gradients are held together stand under the name
    of the first of them.
    """
    traces = _Traces(root, networks[0].parameters)
    return _accumulate(networks, memory, traces), traces.by_parameter


class _Traces:
    """The traces of the parts of parameters, summed while columns of the Jacobian are made."""

    def __init__(self, root: Float[Tensor, "n k r"], parameters: Factors) -> None:
        self._root, self._parameters = root, parameters
        self.by_parameter: dict[str, LayerTrace] = {}

    def add_columns(self, name: str, part: slice, columns: Float[Tensor, "nk g"]) -> None:
        """Add columns of the Jacobian: those of a slice of a flattened parameter."""
        n, k, _ = self._root.shape
        parameter = self._parameters[name]
        some = columns.view(n, k, -1).split(max(TILE**2 // len(columns), 1), 2)
        squares = sum((self._root.mT @ c).square().sum().item() for c in some)
        alive = torch.zeros(parameter.numel(), dtype=torch.bool, device=columns.device)
        alive[part] = columns.any(0)
        self._add(name, squares, alive.view(parameter.shape[:1].numel(), -1).any(1))

    def add_layer(self, held: Held) -> None:
        """Add a layer, by its features and gradients."""
        name = held.layer.names[0]
        self._add(name, held.squares(self._root), held.alive(self._parameters[name]))

    def _add(self, name: str, squares: float, alive: Bool[Tensor, " rows"]) -> None:
        before = self.by_parameter.get(name, LayerTrace(0.0, torch.zeros_like(alive)))
        self.by_parameter[name] = LayerTrace(before.trace + squares / len(self._root), before.alive | alive)


def _accumulate(networks: Sequence[Network], memory: float, traces: _Traces | None) -> Float[Tensor, "nk nk"]:
    """Sum a Gram matrix over groups of columns, and the traces of its parts if they are asked for."""
    size = rows_of(networks)
    structures = structures_of(networks)
    plan = plan_of(networks[0], structures[0], memory, result=size, rows=size)
    gram = torch.zeros(size, size, dtype=torch.float64, device=networks[0].x.device)
    what = announced(networks[0], structures[0], plan)
    for group in plan.groups:
        blocks, held, places = gathered(networks, structures, plan, group, what, wide=COLUMNS)
        if traces is not None:
            for name, part in group.columns.items():
                traces.add_columns(name, part, places[name])
            for layer in held:
                traces.add_layer(layer)
        places.clear()
        while blocks:
            add_columns(gram, blocks.pop())
        while held:
            held.pop().add_to(gram)
        check_finite(gram.diagonal(), group)
    return mirrored(gram).div_(sum(len(network.x) for network in networks))


@torch.inference_mode(False)
@torch.no_grad()
def matrix_of(networks: Sequence[Network], memory: float) -> Float[Tensor, "p p"]:
    """Return the Gauss-Newton matrix itself, of networks that have been tried and have few parameters."""
    structures = structures_of(networks)
    sizes = {name: p.numel() for name, p in networks[0].parameters.items()}
    p = sum(sizes.values())
    plan = plan_of(networks[0], structures[0], memory, result=p)
    everything = Group({name: slice(0, size) for name, size in sizes.items()}, [])
    matrix = torch.zeros(p, p, dtype=torch.float64, device=networks[0].x.device)
    for network, structure in zip(networks, structures, strict=True):
        with network.as_template():
            for some in rows(network, structure, [*sizes], plan.units, plan.outputs):
                block = matrix.new_empty(some.units.stop - some.units.start, some.outputs.stop - some.outputs.start, p)
                places = block.split([*sizes.values()], 2)
                for (name, part), place in zip(everything.columns.items(), places, strict=True):
                    write_columns(place, network, structure, some, name, part)
                add_columns(matrix, block.flatten(0, 1).mT)
    check_finite(matrix.diagonal(), everything)
    return mirrored(matrix).div_(sum(len(network.x) for network in networks))


def rows_of(networks: Sequence[Network]) -> int:
    """Return the number of rows of the Jacobian."""
    return sum(len(network.x) * network.outputs for network in networks)


def mirrored(matrix: Float[Tensor, "r r"]) -> Float[Tensor, "r r"]:
    """Fill a matrix below its diagonal with what is above it."""
    for start in range(0, len(matrix), TILE):
        stop = start + TILE
        diagonal = matrix[start:stop, start:stop]
        diagonal.copy_(diagonal.triu() + diagonal.triu(1).mT)
        matrix[stop:, start:stop] = matrix[start:stop, stop:].mT
    return matrix


def jacobian_blocks(
    module: nn.Module,
    x: Tensor | Sequence[Tensor],
    *,
    output: Callable[..., Tensor] | None = None,
    mode: str | None = None,
    memory: float = 4.0,
) -> Iterator[Float[Tensor, "nk g"]]:
    """Return the Jacobian of a network block by block: all rows, but some of the columns.

    The columns are those of the flattened parameters, from the last one that the module registered to the first, so
    that the first blocks need no more than the end of a backward pass. A block is forgotten when it is handed out: to
    stay within `memory`, let go of it (`del`) before asking for the next.

    Parameters
    ----------
    module, x, output, mode
        as for :func:`gauss_newton_gram`
    memory
        GiB that may be used beyond the module and the data, for one block among others

    Raises
    ------
    TypeError, ValueError
        As :func:`gauss_newton_gram`.
    """
    check_memory(memory)
    return blocks_of(networks_of(module, x, output, mode, memory), memory)


def blocks_of(networks: Sequence[Network], memory: float) -> Iterator[Float[Tensor, "nk g"]]:
    """Return the Jacobian of networks that have been tried already, block by block."""
    structures = structures_of(networks)
    plan = plan_of(networks[0], structures[0], memory, result=0, rows=rows_of(networks))

    def one(group: Group) -> Float[Tensor, "nk g"]:
        block = gathered(networks, structures, plan, group)[0][0]
        check_finite(torch.linalg.vector_norm(block, math.inf), group)
        return block

    return map(one, plan.groups)


@torch.inference_mode(False)
@torch.no_grad()
def gathered(
    networks: Sequence[Network],
    structures: Sequence[Structure],
    plan: Plan,
    group: Group,
    what: str = "Jacobian",
    *,
    wide: float = math.inf,
) -> tuple[list[Float[Tensor, "nk g"]], list[Held], dict[str, Float[Tensor, "nk g"]]]:
    """Return the columns of a group in blocks, its layers, and the columns by parameter.

    Each parameter that is wide has a block of its own; the last block holds all others.
    """
    device = networks[0].x.device
    new = partial(torch.empty, rows_of(networks), dtype=torch.float64, device=device)
    widths = {name: part.stop - part.start for name, part in group.columns.items()}
    places = {name: new(width) for name, width in widths.items() if width >= wide}
    narrow = {name: width for name, width in widths.items() if width < wide}
    blocks = [*places.values(), new(sum(narrow.values()))]
    places |= zip(narrow, blocks[-1].split([*narrow.values()], 1), strict=True)
    names = [*group.columns, *(name for layer in group.layers for name in layer.names)]
    first, held = 0, []
    for network, structure in zip(networks, structures, strict=True):
        units = 1 if network.coupled else len(network.x)
        outputs = len(network.x) * network.outputs // units
        held = [Held(structure, layer, units, outputs, device) for layer in group.layers]
        steps = math.ceil(units / plan.units) * math.ceil(outputs / plan.outputs)
        own = {name: place[first : first + units * outputs].unflatten(0, (units, -1)) for name, place in places.items()}
        with network.as_template():
            found = rows(network, structure, names, plan.units, plan.outputs)
            for some in progress(found, what, steps):
                for name, part in group.columns.items():
                    write_columns(own[name][some.units, some.outputs], network, structure, some, name, part)
                for layer in held:
                    layer.take(some)
        first += units * outputs
    return blocks, held, places


def check_finite(values: Tensor, group: Group) -> None:
    """Refuse a Jacobian of which some measure is not finite."""
    if not torch.isfinite(values).all():
        names = ", ".join([*group.columns, *(name for layer in group.layers for name in layer.names)])
        raise NotFiniteError(
            f"The Jacobian with respect to {names} has NaN or infinite entries; the network has no derivative at these "
            "weights and data (a square root of 0 has none), or overflows."
        )
