r"""One end of the spectrum of a symmetric operator by a block Davidson iteration, and bounds on its error.

With Ritz vectors X, values :math:`\theta_1, \dots, \theta_b` and residuals :math:`R = G X - X \Theta`, there is an
eigenvalue within :math:`\|r_i\|` of each value. The error of the first one is of second order when the rest of the
spectrum is known to lie beyond some :math:`\beta`: by elimination of the rest, the end of G is no further out than that
of :math:`\Theta \pm R^\top R / |\theta_1 - \beta|` (Temple and Kato). The last of the Ritz values, less its own error,
stands for :math:`\beta`.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.eigen.result import NotConvergedError

Map = Callable[[Float[Tensor, "n b"]], Float[Tensor, "n b"]]
PATIENCE = 15  # steps that do not halve the error, after which the rest of it may be rounding
NEGLIGIBLE_POWER = 0.75  # of eps: a remainder of a unit column that is smaller than that is rounding
TRUSTED = 0.1  # relative error below which the rest of the block is trusted not to hide another extreme


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
    precondition: Map = lambda residual: residual,
    errors: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda values, residual, _: residual_errors(values, residual),
    improve: Callable[[float, float], None] = lambda value, error: None,
    norm: float = 0.0,
    tolerance: float,
    max_steps: int,
    patience: int = PATIENCE,
    max_blocks: int = 32,
) -> ExtremePair:
    """Return the largest or the smallest eigenpair of a symmetric operator, or raise `NotConvergedError`.

    Each step adds the preconditioned residuals of a whole block of Ritz vectors to the search space and solves the
    projected problem (Davidson 1975, with the block of Knyazev 2001). A block as large as the cluster at the end of
    the spectrum makes its convergence depend on the gap behind the cluster, not within it.

    The preconditioner is applied to residuals, and `improve` may better it after each step, by the first value and its
    error. The relative errors are a function of the Ritz values, their residuals, and these preconditioned. The
    iteration ends when the first error is below the tolerance, those that could still overtake it are below its square
    root, and the others have settled; or when the residuals are nothing but rounding, told by the norm of the operator:
    after as many steps that do not halve the error as there is patience. The search space is restarted from its best
    quarter when it has `max_blocks` blocks.
    """
    eps, space = torch.finfo(start.dtype).eps, orthonormalise(start)
    if not space.shape[1] or not torch.isfinite(space).all():
        raise NotConvergedError("The iteration has no vector to start from: all of them are zero or not finite.")
    image, block = apply(space), min(block, space.shape[1])
    best = ExtremePair(0.0, space, torch.inf, 0)
    for step in range(1, max_steps + 1):
        if space.shape[1] > max_blocks * block:
            _, rotation = _rayleigh_ritz(space, image, max_blocks * block // 4, largest)
            space, image = space @ rotation, image @ rotation
        # The products of a wide space bring eps * width * norm of rounding into every Ritz value, which hides a small
        # one. Where that matters, a pair that meets the tolerance is not returned before a second pass has multiplied
        # its block anew and verified it; if that fails, the search goes on from the block alone.
        for verified in (patience == 0, True):
            values, rotation = _rayleigh_ritz(space, image, block, largest)
            vectors = space @ rotation
            residual = image @ rotation - vectors * values
            correction = precondition(residual)
            error = errors(values, residual, correction)
            if error[0] < best.error / 2:
                best = ExtremePair(values[0].item(), vectors, error[0].item(), step)
            new = orthonormalise(correction, space)
            size, width = max(norm, values.abs().max().item()), space.shape[1]
            idle = new.shape[1] == 0 or step > best.steps + patience
            stuck = idle and torch.linalg.vector_norm(residual[:, 0]) <= 100 * eps * size
            if stuck and best.steps and not torch.isfinite(error[0]):  # rounding has the upper hand by now
                return best._replace(error=max(best.error, 1.0), steps=step)
            if not (_has_settled(values, error, largest, tolerance) or (stuck and torch.isfinite(error[0]))):
                break
            if verified or width <= block or eps * width * size <= tolerance / 10 * values[0].item():
                return ExtremePair(values[0].item(), vectors, error[0].item(), step)
            space = orthonormalise(vectors)
            image = apply(space)
        if new.shape[1] == 0:
            break
        improve(values[0].item(), error[0].item())
        space, image = torch.cat([space, new], 1), torch.cat([image, apply(new)], 1)
    remedy = "; allow more steps or a larger tolerance."
    if not new.shape[1]:
        remedy = ", with no direction left to search; the matrix may be zero or indefinite: look at all eigenvalues."
    which = f"The {'largest' if largest else 'smallest'} eigenvalue did not converge"
    found = f"after {step} steps its relative error is {error[0]:.1e}, above the tolerance of {tolerance:.0e}"
    raise NotConvergedError(f"{which}: {found}{remedy}")


def _rayleigh_ritz(
    space: Float[Tensor, "n q"], image: Float[Tensor, "n q"], number: int, largest: bool
) -> tuple[Float[Tensor, " b"], Float[Tensor, "q b"]]:
    """Return some Ritz values of an operator in a space, from the wanted end on, and their vectors in its basis."""
    projected = space.mT @ image
    values, rotation = eigh_from_end((projected + projected.mT) / 2, largest=largest)
    return values[:number], rotation[:, :number]


def _has_settled(values: Float[Tensor, " b"], error: Float[Tensor, " b"], largest: bool, tolerance: float) -> bool:
    """Whether the first value is within the tolerance, and none of the block can still overtake it."""
    margin = values.abs() * error
    rivals = values + margin >= values[0] if largest else values - margin <= values[0]
    rivals[0] = True
    settled = error.max() <= TRUSTED and error[rivals].max() <= max(tolerance, tolerance**0.5)
    return bool(error[0] <= tolerance and settled)


def residual_errors(values: Float[Tensor, " b"], residual: Float[Tensor, "n b"]) -> Float[Tensor, " b"]:
    """Return relative errors of the Ritz values at either end, the outermost first, from their residuals."""
    eps = torch.finfo(values.dtype).eps
    coupling = (residual[:, :-1].mT @ residual[:, :-1]).double()
    values, linear = values.double(), torch.linalg.vector_norm(residual, dim=0).double()
    linear = torch.where(linear <= eps * values.abs().max(), 0, linear)
    errors = torch.where(values > 0, linear / values, torch.inf)
    distance = (values[0] - values[-1]).abs() - linear[-1]
    if len(values) > 1 and distance > 0 and values[0] > 0:
        below = values[0] < values[-1]
        moved = values[:-1].diag() + (-1 if below else 1) * coupling / distance
        moved = torch.linalg.eigvalsh(moved)[0 if below else -1]
        errors[0] = torch.minimum(errors[0], (moved / values[0] - 1).abs())
    return errors


def preconditioned_errors(
    values: Float[Tensor, " b"],
    residual: Float[Tensor, "n b"],
    solved: Float[Tensor, "n b"],
    *,
    slack: float,
    shift: float,
    proved: bool,
) -> Float[Tensor, " b"]:
    r"""Return relative errors of the Ritz values at the lower end, the smallest first, from solved residuals.

    These are residuals times the inverse of :math:`N - \sigma`, with the shift :math:`\sigma` and :math:`G \ge \eta N`
    with the slack :math:`\eta`, which bounds relative errors, however far below the largest eigenvalue the values lie.
    Nothing of second order is made of a slack that is guessed, not proved.
    """
    weighted, values = (residual.mT @ solved).double() / slack, values.double()
    above = values - slack * shift
    linear = (weighted.diagonal().clamp_min(0) * above).sqrt() / values
    linear = torch.where(above > 0, linear, torch.inf)  # otherwise the value is nothing but rounding
    errors = linear.clone()
    beyond = values[-1] * (1 - linear[-1])
    if proved and len(values) > 1 and beyond > values[0]:
        share = 1 - above[0] / (beyond - slack * shift)
        moved = 1 - torch.linalg.eigvalsh(values[:-1].diag() - weighted[:-1, :-1] / share)[0] / values[0]
        errors[0] = torch.minimum(errors[0], moved.clamp_min(0))
    return errors


def eigh_from_end(matrix: Float[Tensor, "q q"], *, largest: bool) -> tuple[Float[Tensor, " q"], Float[Tensor, "q q"]]:
    """Return the eigenvalues of a symmetric matrix and their vectors, from the largest or the smallest on."""
    values, vectors = torch.linalg.eigh(matrix)
    return (values.flip(0), vectors.flip(1)) if largest else (values, vectors)


def krylov_space(apply: Map, start: Float[Tensor, "n b"], steps: int) -> Float[Tensor, "n q"]:
    """Return an orthonormal basis of the columns of a matrix and of their products with the powers of an operator."""
    basis = new = orthonormalise(start)
    for _ in range(steps):
        new = orthonormalise(apply(new), basis)
        basis = torch.cat([basis, new], 1)
    return basis


def orthonormalise(v: Float[Tensor, "n b"], basis: Float[Tensor, "n q"] | None = None) -> Float[Tensor, "n c"]:
    """Return orthonormal columns that extend a basis by the span of v, without those that add nothing to it."""
    v = v / v.abs().amax(0).clamp_min(torch.finfo(v.dtype).tiny)  # the square of a tiny entry would be zero
    v = v / torch.linalg.vector_norm(v, dim=0).clamp_min(0.5)
    if basis is None:
        return _independent(v)
    v = v - basis @ (basis.mT @ v)
    v = _independent(v[:, torch.linalg.vector_norm(v, dim=0) > _negligible(v)])
    products = basis.mT @ v  # left by rounding of the first projection
    v = v - basis @ products
    return v if (products.abs() <= torch.finfo(v.dtype).eps ** 0.5).all() else _independent(v)


def _independent(v: Float[Tensor, "n b"]) -> Float[Tensor, "n c"]:
    """Return an orthonormal basis of the span of unit columns and their parts, without negligible directions."""
    q, r = torch.linalg.qr(v)
    if v.shape[1] <= len(v) and (r.diagonal().abs() > _negligible(v)).all():
        return q
    # QR would put noise in place of a column that adds nothing, and take it out of the columns after it
    u, s, _ = torch.linalg.svd(v, full_matrices=False)
    return u[:, s > _negligible(v)]


def _negligible(v: Tensor) -> float:
    return torch.finfo(v.dtype).eps ** NEGLIGIBLE_POWER


def multiply(matrix: Float[Tensor, "n n"], x: Float[Tensor, "n b"]) -> Float[Tensor, "n b"]:
    """Return the product of a symmetric matrix with columns, up to three times faster than `matrix @ x`."""
    return (x.mT.contiguous() @ matrix).mT


def random_columns(like: Tensor, *shape: int) -> Tensor:
    """Return random columns of a type and place, the same ones at each call."""
    generator = torch.Generator(like.device).manual_seed(0)
    return torch.randn(*shape, generator=generator, dtype=like.dtype, device=like.device)
