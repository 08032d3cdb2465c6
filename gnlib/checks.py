"""Arguments converted to double precision and checked, so that each error reads the same everywhere."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnlib.refused import Refused

EPS = torch.finfo(torch.float64).eps
"""Relative rounding of double precision."""

SYMMETRIC_UP_TO = 1e-10  # difference from the transpose that counts as rounding, relative to the largest entry
REPAIR = "the weights or the data are too large, or of a sign that the network cannot take."
SAME_UP_TO = 1e-8  # relative difference above which outputs are not the same
SMALL = 1e-4  # of the largest output; differences of a smaller output are relative to that size, not to its own
ROUNDING = 1e-11  # of an output, which may be lost on the way to it
PART = 2**16  # entries at a time, which stay in the cache


def as_float64(array: Tensor, name: str, *, infinite: bool = False) -> Tensor:
    """Return a real tensor in double precision, finite unless that is not asked for, or raise an error that names it.

    Single precision resolves condition numbers up to about 1e7 only, so everything in gnlib is computed in double
    precision whatever the precision of the input.
    """
    if not isinstance(array, Tensor):
        kind = type(array).__name__
        raise TypeError(f"{name} is of type {kind}; pass a torch tensor (torch.as_tensor converts NumPy arrays).")
    kinds = {
        "sparse": not array.is_nested and array.layout is not torch.strided,
        "nested": array.is_nested,
        "quantised": array.is_quantized,
        "masked, and its mask would be ignored": isinstance(array, torch.masked.MaskedTensor),
        "on the meta device, without values": array.is_meta,
    }
    if kind := next((kind for kind, holds in kinds.items() if holds), None):
        raise TypeError(f"{name} is {kind}; pass a dense tensor of the values that are meant.")
    if array.is_complex():
        raise TypeError(f"{name} is complex ({array.dtype}); gnlib works with real matrices.")
    if array.numel() == 0:
        raise Refused("empty", f"{name} is empty (shape {tuple(array.shape)}); every dimension must be at least 1.")
    array = array.detach().to(torch.float64)
    ends = torch.stack(torch.aminmax(array))  # without temporaries of its size
    if ends.isnan().any() or (not infinite and ends.isinf().any()):
        bad = int((~torch.isfinite(array)).sum())
        raise Refused("not-finite", f"{name} has {bad} entries that are NaN or infinite; remove or repair them first.")
    return array


def as_samples(x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Return samples held in rows in double precision."""
    x = as_float64(x, "x")
    if x.ndim != 2:
        raise Refused("wrong-shape", f"x has shape {tuple(x.shape)}; samples in rows, of shape (n, d), were expected.")
    return x


def as_matrix(matrix: Float[Tensor, "d d"] | np.ndarray, name: str) -> tuple[Float[Tensor, "d d"], float]:
    """Return a symmetric matrix of torch or NumPy in double precision, and the rounding of the type that it has."""
    if np.ma.is_masked(matrix):
        raise TypeError(
            f"{name} is a masked array, and its mask would be ignored; pass the rows and columns that are meant."
        )
    if isinstance(matrix, np.ndarray):
        matrix = torch.as_tensor(matrix.astype(np.float64) if matrix.dtype == np.longdouble else matrix)
    symmetric = as_symmetric(matrix, name)
    return symmetric, rounding_of(matrix.dtype)


def rounding_of(dtype: torch.dtype) -> float:
    """Return the relative rounding of a type that is coarser than double precision, and 0 for all others."""
    eps = torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
    return eps if eps > EPS else 0.0


def as_symmetric(matrix: Float[Tensor, "d d"], name: str) -> Float[Tensor, "d d"]:
    """Return a square symmetric matrix in double precision, free of the rounding in its antisymmetric part."""
    rounding = max(SYMMETRIC_UP_TO, 10 * rounding_of(matrix.dtype)) if isinstance(matrix, Tensor) else 0.0
    matrix = as_float64(matrix, name)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise Refused("wrong-matrix", f"{name} has shape {tuple(matrix.shape)}; a square matrix was expected.")
    if _looks_symmetric(matrix):
        return matrix
    difference = matrix.mT.clone(memory_format=torch.contiguous_format)  # faster than sums across
    difference -= matrix
    largest, asymmetry = (torch.stack(torch.aminmax(m)).abs().max() for m in (matrix, difference))
    if asymmetry > rounding * largest:
        raise Refused(
            "wrong-matrix",
            f"{name} is not symmetric: entries differ from those of its transpose by up to {asymmetry:.1e}; "
            "an eigenvalue routine for symmetric matrices would silently read one triangle only.",
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
        raise Refused("empty", "weights is empty; a network needs at least one weight matrix.")
    for i, w in enumerate(weights):
        if w.ndim != 2:
            raise Refused(
                "wrong-shape", f"weights[{i}] has shape {tuple(w.shape)}; a matrix of shape (out, in) was expected."
            )
        if i and w.shape[1] != weights[i - 1].shape[0]:
            raise Refused(
                "wrong-shape",
                f"weights[{i}] takes {w.shape[1]} inputs but weights[{i - 1}] gives {weights[i - 1].shape[0]} outputs; "
                "weights are (out, in), input layer first.",
            )
    return weights


class AxesError(Refused):
    """The outputs of a sample have several axes, as those of tokens or pixels have."""


def as_outputs(y: object, n: int) -> Float[Tensor, "n k"]:
    """Return the outputs of n samples in double precision as they are, or raise an error that names the remedy."""
    if not isinstance(y, Tensor) or y.ndim != 2 or len(y) != n or y.shape[1] == 0:
        got = f"shape {tuple(y.shape)}" if isinstance(y, Tensor) else f"type {type(y).__name__}"
        flat = isinstance(y, Tensor) and y.numel() == n
        raise (AxesError if isinstance(y, Tensor) and y.ndim > 2 and len(y) == n else Refused)(
            "wrong-outputs",
            f"The outputs of {n} samples are of {got}; a tensor of shape ({n}, k) was expected. Pass output=, a "
            "function that makes it of what the module returns, such as lambda y: "
            f"{'y.reshape(-1, 1)' if flat else 'y.flatten(1)'}.",
        )
    if y.dtype != torch.float64:
        raise Refused(
            "low-precision",
            f"The outputs are of {y.dtype} although all parameters are in double precision; an argmax has no gradient, "
            "and a cast in the forward pass loses digits. Pass output= to return what comes before it.",
        )
    return y


def agree(a: Float[Tensor, "n k"], b: Float[Tensor, "n k"], tolerance: float = SAME_UP_TO) -> bool:
    """Whether outputs are the same, each relative to how it varies; NaN and infinite ones have to be equal."""
    close = (a - b).abs() <= allowance(b, tolerance)
    return bool((close | (a == b) | (a.isnan() & b.isnan())).all())


def allowance(y: Float[Tensor, "n k"], tolerance: float = SAME_UP_TO) -> Float[Tensor, " k"]:
    """Return how much outputs that count as the same may differ, relative to how they vary.

    Relative to their size a large mean would hide all differences.
    """
    finite = torch.nan_to_num(y, 0, 0, 0)
    spread, size = (finite - finite.mean(0)).abs().amax(0), finite.abs().amax(0)
    return tolerance * spread.clamp_min(SMALL * spread.max()) + ROUNDING * size.clamp_min(SMALL * size.max())


def agree_in_parts(
    a: Sequence[Tensor], b: Sequence[Tensor], sizes: Sequence[float], tolerance: float = SAME_UP_TO
) -> bool:
    """Whether the parts of two gradients are the same, relative to sizes of what they are sums of; or not finite."""
    largest = max(sizes, default=0.0)
    return all(
        largest_difference(x, y) <= tolerance * max(size, SMALL * largest) or not torch.isfinite(y).all()
        for x, y, size in zip(a, b, sizes, strict=True)
    )


def largest_entry(x: Tensor) -> float:
    """Return the largest absolute value of the entries, NaN if one of them is, without a copy."""
    return float(torch.stack(torch.aminmax(x)).abs().max())


def largest_difference(a: Tensor, b: Tensor) -> float:
    """Return the largest absolute difference of entries, NaN if one of them is, without new memory of their size."""
    if a.numel() <= PART:
        return largest_entry(a - b)
    difference = a.new_empty(PART)
    parts = zip(a.reshape(-1).split(PART), b.reshape(-1).split(PART), strict=True)
    ends = [torch.stack(torch.aminmax(torch.sub(x, y, out=difference[: len(x)]))) for x, y in parts]
    return largest_entry(torch.stack(ends))


def versions_of(module: nn.Module, *, buffers: bool) -> dict[str, int]:
    """Return how often each parameter of a module, and each buffer, was changed in place."""
    tensors = {**dict(module.named_parameters()), **(dict(module.named_buffers()) if buffers else {})}
    return {name: 0 if tensor.is_inference() else tensor._version for name, tensor in tensors.items()}


def check_versions(before: Mapping[str, int], now: Mapping[str, int]) -> None:
    """Refuse a module that has changed."""
    for name, version in now.items():
        if version != before[name]:
            raise Refused(
                "module-changed",
                f"{name} of the module has changed since this object was made, which speaks of the network as it was "
                "then; make a new one.",
            )
