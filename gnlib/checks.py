"""Arguments converted to double precision and checked, so that each error reads the same everywhere."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

EPS = torch.finfo(torch.float64).eps
"""Relative rounding of double precision."""

REPAIR = "the weights or the data are too large, or of a sign that the network cannot take."
SAME_UP_TO = 1e-8  # relative difference above which outputs are not the same
SMALL = 1e-4  # of the largest output; differences of a smaller output are relative to that size, not to its own


def as_float64(array: Tensor, name: str) -> Tensor:
    """Return a real, finite tensor in double precision, or raise an error that names it.

    Single precision resolves condition numbers up to about 1e7 only, so everything in gnlib is computed in double
    precision whatever the precision of the input.
    """
    if not isinstance(array, Tensor):
        kind = type(array).__name__
        raise TypeError(f"{name} is of type {kind}; pass a torch tensor (torch.as_tensor converts NumPy arrays).")
    if array.is_complex():
        raise TypeError(f"{name} is complex ({array.dtype}); gnlib works with real matrices.")
    if array.numel() == 0:
        raise ValueError(f"{name} is empty (shape {tuple(array.shape)}); every dimension must be at least 1.")
    array = array.detach().to(torch.float64)
    if not torch.isfinite(torch.stack(torch.aminmax(array))).all():  # without temporaries of its size
        bad = int((~torch.isfinite(array)).sum())
        raise ValueError(f"{name} has {bad} entries that are NaN or infinite; remove or repair them first.")
    return array


def as_samples(x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Return samples held in rows in double precision."""
    x = as_float64(x, "x")
    if x.ndim != 2:
        raise ValueError(f"x has shape {tuple(x.shape)}; samples in rows, of shape (n, d), were expected.")
    return x


def as_symmetric(matrix: Float[Tensor, "d d"], name: str) -> Float[Tensor, "d d"]:
    """Return a square symmetric matrix in double precision, free of the rounding in its antisymmetric part."""
    matrix = as_float64(matrix, name)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} has shape {tuple(matrix.shape)}; a square matrix was expected.")
    if _looks_symmetric(matrix):
        return matrix
    difference = matrix.mT.clone(memory_format=torch.contiguous_format)  # faster than sums across
    difference -= matrix
    largest, asymmetry = (torch.stack(torch.aminmax(m)).abs().max() for m in (matrix, difference))
    if asymmetry > 1e-10 * largest:
        raise ValueError(
            f"{name} is not symmetric: entries differ from those of its transpose by up to {asymmetry:.1e}; "
            "an eigenvalue routine for symmetric matrices would silently read one triangle only."
        )
    return (matrix + matrix.mT).div_(2)


def _looks_symmetric(matrix: Float[Tensor, "d d"]) -> bool:
    """Whether a matrix and its transpose have the same product with a random vector, up to rounding."""
    # That takes two passes over a large matrix; to look at the transpose of each entry takes ten times as long.
    generator = torch.Generator(matrix.device).manual_seed(0)
    v = torch.randn(len(matrix), generator=generator, dtype=matrix.dtype, device=matrix.device)
    rounding = len(matrix) * EPS * torch.stack(torch.aminmax(matrix)).abs().max()
    return bool((matrix @ v - v @ matrix).abs().max() <= rounding)


def numerical_rank(values: Float[Tensor, " q"], size: int) -> int:
    """Return the number of eigenvalues or singular values above `size * eps` times the largest one.

    This is the one rule of the library for what counts as zero where theory does not give the rank; `size` is the
    larger dimension of the matrix.
    """
    return int((values > size * EPS * values.abs().max()).sum())


def as_weights(weights: Sequence[Tensor]) -> list[Tensor]:
    """Return weight matrices in double precision after checking that their product exists."""
    weights = [as_float64(w, f"weights[{i}]") for i, w in enumerate(weights)]
    if not weights:
        raise ValueError("weights is empty; a network needs at least one weight matrix.")
    for i, w in enumerate(weights):
        if w.ndim != 2:
            raise ValueError(f"weights[{i}] has shape {tuple(w.shape)}; a matrix of shape (out, in) was expected.")
        if i and w.shape[1] != weights[i - 1].shape[0]:
            raise ValueError(
                f"weights[{i}] takes {w.shape[1]} inputs but weights[{i - 1}] gives {weights[i - 1].shape[0]} outputs; "
                "weights are (out, in), input layer first."
            )
    return weights


def as_outputs(y: object, n: int) -> Float[Tensor, "n k"]:
    """Return the outputs of n samples in double precision as they are, or raise an error that names the remedy."""
    if not isinstance(y, Tensor) or y.ndim != 2 or len(y) != n or y.shape[1] == 0:
        got = f"shape {tuple(y.shape)}" if isinstance(y, Tensor) else f"type {type(y).__name__}"
        flat = isinstance(y, Tensor) and y.numel() == n
        raise ValueError(
            f"The outputs of {n} samples are of {got}; a tensor of shape ({n}, k) was expected. Pass output=, a "
            "function that makes it of what the module returns, such as lambda y: "
            f"{'y.reshape(-1, 1)' if flat else 'y.flatten(1)'}."
        )
    if y.dtype != torch.float64:
        raise ValueError(
            f"The outputs are of {y.dtype} although all parameters are in double precision; an argmax has no gradient, "
            "and a cast in the forward pass loses digits. Pass output= to return what comes before it."
        )
    return y


def agree(a: Tensor, b: Tensor, tolerance: float = SAME_UP_TO) -> bool:
    """Whether outputs are the same, each relative to its size; NaN and infinite ones have to be equal."""
    size = torch.nan_to_num(b, 0, 0, 0).abs().amax(0)
    close = (a - b).abs() <= tolerance * size.clamp_min(SMALL * size.max())
    return bool((close | (a == b) | (a.isnan() & b.isnan())).all())
