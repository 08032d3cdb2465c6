"""The outputs of a forward pass: what they have to be, and when they are the same."""

import torch
from jaxtyping import Float
from torch import Tensor

REPAIR = "the weights or the data are too large, or of a sign that the network cannot take."
AGREE = 1e-8  # relative difference above which they are not the same
FLOOR = 1e-4  # of the largest output, below which differences of an output are compared with that, not with its size


def as_outputs(y: object, n: int) -> Float[Tensor, "n k"]:
    """Return what a forward pass gave if it is the outputs of n samples, or say what is wrong with it."""
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


def agree(a: Tensor, b: Tensor, tolerance: float = AGREE) -> bool:
    """Say whether outputs are the same, each relative to its size; NaN and infinite ones have to be equal."""
    size = torch.nan_to_num(b, 0, 0, 0).abs().amax(0)
    close = (a - b).abs() <= tolerance * size.clamp_min(FLOOR * size.max())
    return bool((close | (a == b) | (a.isnan() & b.isnan())).all())
