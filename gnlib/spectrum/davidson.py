"""Block Davidson iteration for one end of a spectrum."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.spectrum.result import NotConvergedError

Map = Callable[[Float[Tensor, "n b"]], Float[Tensor, "n b"]]
PATIENCE = 15
NOTHING = 0.75  # power of eps that is the size of what is left of a unit column below which it is rounding
SETTLED = 0.1  # relative error below which the rest of the block is trusted not to hide another extreme


class ExtremePair(NamedTuple):
    """An extreme eigenvalue, its unit eigenvector and the rest of the block, its relative error, and the steps."""

    value: float
    vectors: Float[Tensor, "n b"]
    error: float
    steps: int


def extreme_eigenpair(
    apply: Map,
    start: Float[Tensor, "n b"],
    *,
    block: int,
    largest: bool,
    precondition: Map,
    errors: Callable[[Float[Tensor, " b"], Float[Tensor, "n b"], Float[Tensor, "n b"]], Float[Tensor, " b"]],
    improve: Callable[[float, float], None] = lambda value, error: None,
    norm: float = 0.0,
    tolerance: float,
    max_steps: int,
    patience: int = PATIENCE,
    max_blocks: int = 32,
) -> ExtremePair:
    """Return the largest or the smallest eigenpair of a symmetric operator.

    Each step adds the preconditioned residuals of a whole block of Ritz vectors to the search space and solves the
    projected problem (Davidson 1975, with the block of Knyazev 2001). A block as large as the cluster at the end of
    the spectrum makes its convergence depend on the gap behind the cluster, not within it.

    Parameters
    ----------
    apply
        product of the operator with the columns of a matrix
    start
        columns that span the first search space
    block
        number of Ritz vectors that are improved at a time
    precondition
        approximate inverse near the wanted end, applied to residuals (the identity for none)
    errors
        relative errors of the eigenvalues, from the eigenvalues, their residuals, and these preconditioned
    improve
        called after each step with the first value and its error, to better the preconditioner
    norm
        norm of the operator where it is known, to tell rounding by
    tolerance
        the iteration ends when the first of the errors is below it, those that could still overtake it are
        below its square root, and the others have settled; or earlier when the residuals are nothing but rounding,
        which the error of the result then tells
    max_steps
        steps after which it gives up
    patience
        steps that do not halve the error after which a residual of the size of rounding is taken for rounding; with 0
        the iteration ends where rounding begins, and does not make sure of its last digits
    max_blocks
        size of the search space, in blocks, at which it is restarted from its best quarter

    Raises
    ------
    NotConvergedError
        After `max_steps`.
    """
    eps = torch.finfo(start.dtype).eps
    space = orthonormal(start)
    if not space.shape[1] or not torch.isfinite(space).all():
        raise NotConvergedError("The iteration has no vector to start from: all of them are zero or not finite.")
    image = apply(space)
    block = min(block, space.shape[1])
    best, best_step, kept = float("inf"), 0, None
    for step in range(1, max_steps + 1):
        if space.shape[1] > max_blocks * block:
            _, rotation = _ritz(space, image, largest)
            space, image = (v @ rotation[:, : max_blocks * block // 4] for v in (space, image))
        # A large space brings the rounding of its largest products into all values: where that matters, those of the
        # block alone count.
        for verified in (patience == 0, True):
            values, rotation = _ritz(space, image, largest)
            values, rotation = values[:block], rotation[:, :block]
            ritz = space @ rotation
            residual = image @ rotation - ritz * values
            correction = precondition(residual)
            error = errors(values, residual, correction)
            if error[0] < best / 2:
                best, best_step, kept = error[0].item(), step, (values[0].item(), ritz)
            rivals = values * (1 + error) >= values[0] if largest else values * (1 - error) <= values[0]
            settled = error.max() <= SETTLED and error[rivals].max() <= max(tolerance, tolerance**0.5)
            new = orthonormal(correction, space)
            idle = new.shape[1] == 0 or step > best_step + patience
            tiny = torch.linalg.vector_norm(residual[:, 0]) <= 100 * eps * max(norm, values.abs().max().item())
            done = error[0] <= tolerance and settled
            if idle and tiny and kept and not torch.isfinite(error[0]):  # rounding has the upper hand by now
                return ExtremePair(*kept, max(best, 1.0), step)
            if not (done or (idle and tiny and torch.isfinite(error[0]))):
                break
            rounding = eps * space.shape[1] * max(norm, values.abs().max().item())
            if verified or space.shape[1] <= block or rounding <= tolerance / 10 * values[0].item():
                return ExtremePair(values[0].item(), ritz, error[0].item(), step)
            space = orthonormal(ritz)
            image = apply(space)
        if new.shape[1] == 0:
            break
        improve(values[0].item(), error[0].item())
        space, image = torch.cat([space, new], 1), torch.cat([image, apply(new)], 1)
    raise NotConvergedError(
        f"The {'largest' if largest else 'smallest'} eigenvalue did not converge: after {step} steps its relative "
        f"error is {error[0]:.1e}, above the tolerance of {tolerance:.0e}"
        + ("; allow more steps or a larger tolerance." if new.shape[1] else ", with no direction left to search.")
    )


def _ritz(
    space: Float[Tensor, "n q"], image: Float[Tensor, "n q"], largest: bool
) -> tuple[Float[Tensor, " q"], Float[Tensor, "q q"]]:
    """Eigenvalues of the projected operator, from the wanted end on, and their vectors in the basis of the space."""
    projected = space.mT @ image
    values, rotation = torch.linalg.eigh((projected + projected.mT) / 2)
    return (values.flip(0), rotation.flip(1)) if largest else (values, rotation)


def krylov_space(apply: Map, start: Float[Tensor, "n b"], steps: int) -> Float[Tensor, "n q"]:
    """Return an orthonormal basis of the columns of a matrix and of their products with the powers of an operator."""
    basis = new = orthonormal(start)
    for _ in range(steps):
        new = orthonormal(apply(new), basis)
        basis = torch.cat([basis, new], 1)
    return basis


def orthonormal(v: Float[Tensor, "n b"], basis: Float[Tensor, "n q"] | None = None) -> Float[Tensor, "n c"]:
    """Orthonormalise columns against each other and a basis, leaving out those that add nothing to it."""
    v = _unit(v)
    if basis is None:
        return _independent(v)
    v = v - basis @ (basis.mT @ v)
    v = _independent(v[:, torch.linalg.vector_norm(v, dim=0) > _nothing(v)])
    products = basis.mT @ v  # what rounding left of the first time
    v = v - basis @ products
    return v if (products.abs() <= torch.finfo(v.dtype).eps ** 0.5).all() else _independent(v)


def _unit(v: Float[Tensor, "n b"]) -> Float[Tensor, "n b"]:
    v = v / v.abs().amax(0).clamp_min(torch.finfo(v.dtype).tiny)  # the square of a tiny entry would be zero
    return v / torch.linalg.vector_norm(v, dim=0).clamp_min(0.5)


def _independent(v: Float[Tensor, "n b"]) -> Float[Tensor, "n c"]:
    """Return an orthonormal basis of the columns, without those that add nothing to what they are parts of."""
    q, r = torch.linalg.qr(v)
    if v.shape[1] <= len(v) and (r.diagonal().abs() > _nothing(v)).all():
        return q
    # QR would put noise in place of a column that adds nothing, and take it out of the columns after it
    u, s, _ = torch.linalg.svd(v, full_matrices=False)
    return u[:, s > _nothing(v)]


def _nothing(v: Tensor) -> float:
    return torch.finfo(v.dtype).eps ** NOTHING
