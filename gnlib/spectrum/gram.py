"""Both ends of the spectrum of a Gram matrix, without the rest of it."""

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.spectrum.coupled_blocks import FEW, CoupledBlocks
from gnlib.spectrum.errors import residual_errors
from gnlib.spectrum.result import ConditionNumber, NotConvergedError

EPS = torch.finfo(torch.float64).eps
PATIENCE = 50  # steps, after which all eigenvalues would have taken no longer


def gram_ends(
    matrix: Float[Tensor, "p p"], outputs: int, *, tolerance: float, max_steps: int
) -> ConditionNumber | None:
    """Return both ends of the spectrum of a symmetric matrix whose row `i k + a` belongs to output a of sample i.

    None is returned if the matrix is not positive definite beyond its rounding, `p * eps` times the largest eigenvalue,
    as its rank takes all eigenvalues to tell; or if the outputs are coupled too strongly for their blocks to help.
    """
    blocks = GramBlocks(matrix, outputs)
    steps = min(max_steps, PATIENCE)
    try:
        top = blocks.end(largest=True, tolerance=tolerance, max_steps=steps)
        bottom = blocks.end(largest=False, norm=top.value, tolerance=tolerance, max_steps=steps)
    except (NotConvergedError, torch.linalg.LinAlgError):
        return None
    p = len(matrix)
    if not bottom.value > p * EPS * top.value:
        return None
    gap = bottom.value / (EPS * top.value)
    return ConditionNumber(
        largest=top.value,
        smallest=bottom.value,
        rank=p,
        gap=gap,
        residual=max(top.error, bottom.error + 1 / gap),
        method=f"block iteration on the matrix, {top.steps} and {bottom.steps} steps",
    )


class GramBlocks(CoupledBlocks):
    """A Gram matrix with its blocks of all samples for one output.

    Parameters
    ----------
    matrix
        symmetric, row `i k + a` for output a of sample i
    outputs
        number k of outputs
    """

    def __init__(self, matrix: Float[Tensor, "nk nk"], outputs: int) -> None:
        self.matrix = self.like = matrix
        self.outputs, self.inputs = outputs, len(matrix) // outputs

    def apply(self, x: Float[Tensor, "p b"]) -> Float[Tensor, "p b"]:  # noqa: D102
        return self.matrix @ x

    def block(self, i: int) -> Float[Tensor, "r r"]:  # noqa: D102
        return self.matrix[i :: self.outputs, i :: self.outputs].clone()

    def split(self, x: Float[Tensor, "p b"]) -> Float[Tensor, "k r b"]:  # noqa: D102
        return x.reshape(self.inputs, self.outputs, -1).transpose(0, 1)

    def join(self, x: Float[Tensor, "k r b"]) -> Float[Tensor, "p b"]:  # noqa: D102
        return x.transpose(0, 1).reshape(len(self.matrix), -1)

    def guess(self, *, largest: bool) -> tuple[float, Float[Tensor, "p b"]]:
        """Project on the vectors at that end of each block."""
        start = self.like.new_zeros(self.outputs, self.inputs, self.outputs, min(FEW, self.inputs))
        for i in range(self.outputs):
            start[i, :, i] = self.ritz_vectors(i, FEW, largest=largest)
        start = self.join(start.flatten(2))
        values, vectors = torch.linalg.eigh(start.mT @ self.apply(start))
        if largest:
            values, vectors = values.flip(0), vectors.flip(1)
        return values[0].item(), start @ vectors[:, : self.columns]

    def errors(  # noqa: D102
        self,
        values: Float[Tensor, " b"],
        residual: Float[Tensor, "p b"],
        solved: Float[Tensor, "p b"],
        *,
        largest: bool,
        shift: float,
    ) -> Float[Tensor, " b"]:
        return residual_errors(values, residual)
