"""The Gauss-Newton matrix of any torch module, through its Jacobian, which is never held whole."""

import math
from collections.abc import Callable, Iterator
from numbers import Real

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnlib.gauss_newton.network import Network
from gnlib.gauss_newton.trial import GIB
from gnlib.progress import progress

BATCH = 8  # samples differentiated together: with more of them the tensors do not fit the cache
COLUMNS = 1024  # of the Jacobian at a time; fewer are not worth a forward and a backward pass for each sample
TILE = 1024  # rows of the Gram matrix updated at a time, from the diagonal to the right
MARGIN = 2  # of the memory that a backward pass is known to take: its temporary tensors are not known


class BudgetError(ValueError):
    """There is too little memory; `needed` says how many GiB there ought to be."""

    def __init__(self, message: str, needed: float) -> None:
        super().__init__(message)
        self.needed = needed


def gauss_newton_gram(
    module: nn.Module,
    x: Tensor,
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
        the data, samples along the first axis; integers, such as the numbers of tokens, are passed on as they are
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
    that fits into `memory`, in parts otherwise.

    Samples are differentiated together by `torch.vmap`. A module that it cannot take (operations in place,
    control flow that depends on the data, recurrent layers, autograd functions of the old form) is differentiated
    sample by sample, which is right but slow. Casts in a forward pass are casts to double precision. Hooks on
    gradients are left out, since they are no part of the function.
    """
    check_memory(memory)
    return gram_of(Network(module, x, output, mode, memory), memory)


def tangent_kernel(
    module: nn.Module,
    x: Tensor,
    *,
    output: Callable[..., Tensor] | None = None,
    mode: str | None = None,
    memory: float = 4.0,
) -> Float[Tensor, "nk nk"]:
    r"""Return the tangent kernel matrix :math:`K = J J^\top` of a network on samples (Liu 2020, Eq. 1).

    J is the Jacobian of all outputs on all samples with respect to the parameters that require a gradient, with row
    `i * k + a` for output a of sample i. It is `n` times :func:`gnlib.gauss_newton.gauss_newton_gram`, and computed as
    such.

    Parameters
    ----------
    module, x, output, mode, memory
        as for :func:`gnlib.gauss_newton.gauss_newton_gram`

    Raises
    ------
    TypeError, ValueError
        As :func:`gnlib.gauss_newton.gauss_newton_gram`.

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
    return gauss_newton_gram(module, x, output=output, mode=mode, memory=memory).mul_(len(x))


def gram_of(network: Network, memory: float) -> Float[Tensor, "nk nk"]:
    """Return the Gram matrix of a network that has been tried already."""
    groups, batch = _plan(network, memory, with_gram=True)
    rows = len(network.x) * network.outputs
    gram = torch.zeros(rows, rows, dtype=torch.float64, device=network.x.device)
    for columns in groups:
        _add_gram(gram, _block(network, columns, batch))
    for start in range(0, rows, TILE):
        stop = start + TILE
        diagonal = gram[start:stop, start:stop]
        diagonal.copy_(diagonal.triu() + diagonal.triu(1).mT)
        gram[stop:, start:stop] = gram[start:stop, stop:].mT
    return gram.div_(len(network.x))


def jacobian_blocks(
    module: nn.Module,
    x: Tensor,
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
    return blocks_of(Network(module, x, output, mode, memory), memory)


def blocks_of(network: Network, memory: float) -> Iterator[Float[Tensor, "nk g"]]:
    """Return the Jacobian of a network that has been tried already, block by block."""
    groups, batch = _plan(network, memory, with_gram=False)
    return (_block(network, columns, batch) for columns in groups)


def check_memory(memory: float) -> None:
    """Refuse what is no amount of memory."""
    if not isinstance(memory, Real):
        raise TypeError(f"memory is {memory!r}; a positive number of GiB was expected, such as 4.0.")
    if not 0 < memory < math.inf:
        raise ValueError(f"memory is {memory}; a positive number of GiB was expected.")


def _plan(network: Network, memory: float, with_gram: bool) -> tuple[list[dict[str, slice]], int]:
    """Choose groups of columns, as few as fit, and the number of samples to differentiate together."""
    n, sizes = len(network.x), [p.numel() for p in network.parameters.values()]
    rows, p = n * network.outputs, sum(sizes)
    fixed = network.copied + with_gram * 8 * (rows**2 + 3 * min(rows, TILE) ** 2)
    # what each sample needs: activations, and gradients of parameters of which only some columns are asked for
    sample = MARGIN * network.bytes_per_sample * (n if network.coupled else 1) + 2 * 8 * max(sizes)
    held = network.outputs + 1 if network.vmapped else 2  # gradients of it in the wanted columns
    least = min(p, COLUMNS)
    free = memory * GIB - fixed
    wanted = min(BATCH, n, free // (4 * sample)) if network.vmapped else 1
    for batch in (max(int(wanted), 1), 1):
        width = int((free - batch * sample) // (8 * (rows + batch * held)))
        if width >= least:
            return _groups(network.parameters, math.ceil(p / math.ceil(p / width))), batch
    needed = math.ceil((fixed + sample + 8 * (rows + held) * least) / GIB * 1000) / 1000
    gram = f", {8 * rows**2 / GIB:.3f} of them for the {rows} x {rows} result" if with_gram else ""
    raise BudgetError(
        f"memory is {memory} GiB but {needed} are needed{gram}; allow more, or pass fewer samples.", needed
    )


def _groups(parameters: dict[str, Tensor], width: int) -> list[dict[str, slice]]:
    """Divide the columns of the Jacobian, last parameters first, into groups of `width`."""
    groups: list[dict[str, slice]] = []
    room = 0
    for name, p in reversed(parameters.items()):
        start = 0
        while start < p.numel():
            if not room:
                groups.append({})
                room = width
            stop = min(start + room, p.numel())
            groups[-1][name] = slice(start, stop)
            start, room = stop, room - (stop - start)
    return groups


@torch.inference_mode(False)
@torch.no_grad()
def _block(network: Network, columns: dict[str, slice], batch: int) -> Float[Tensor, "nk g"]:
    """Return these columns of the Jacobian."""
    samples = 1 if network.coupled else len(network.x)
    rows, width = len(network.x) * network.outputs, sum(part.stop - part.start for part in columns.values())
    block = torch.empty(samples, rows // samples, width, dtype=torch.float64, device=network.x.device)
    with network.as_template():
        gradients = network.gradients(columns, batch)
        for some, output, gradient in progress(gradients, "Jacobian", math.ceil(samples / batch) * block.shape[1]):
            block[some, output] = gradient
    if not torch.isfinite(torch.linalg.vector_norm(block, math.inf)):
        raise ValueError(
            f"The Jacobian with respect to {', '.join(columns)} has NaN or infinite entries; the network has no "
            "derivative at these weights and data (a square root of 0 has none), or overflows."
        )
    return block.flatten(0, 1)


def _add_gram(gram: Float[Tensor, "nk nk"], block: Float[Tensor, "nk g"]) -> None:
    """Add `block @ block.mT` to the blocks of a matrix on the diagonal and above it; overwrites `block`."""
    nonzero = block.any(0).nonzero()[:, 0]
    if len(nonzero) < block.shape[1]:  # masks and dead units: pack the other columns, in place
        for some in block.split(BATCH):
            some[:, : len(nonzero)] = some[:, nonzero]
        block = block[:, : len(nonzero)]
    for start in range(0, len(gram), TILE):
        gram[start : start + TILE, start:].addmm_(block[start : start + TILE], block[start:].mT)
