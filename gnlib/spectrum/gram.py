"""Both ends of the spectrum of a Gram matrix, without the rest of it."""

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.spectrum.coupled_blocks import FEW, CoupledBlocks
from gnlib.spectrum.magnitude import magnitude
from gnlib.spectrum.result import RESOLVED, ConditionNumber, NotConvergedError

EPS = torch.finfo(torch.float64).eps
PATIENCE = 50  # steps, after which all eigenvalues would have taken no longer


def gram_ends(
    matrix: Float[Tensor, "p p"], outputs: int, *, tolerance: float, max_steps: int
) -> ConditionNumber | None:
    """Return both ends of the spectrum of a symmetric matrix whose row `i k + a` belongs to output a of sample i.

    None is returned if the smallest eigenvalue is not resolved, as it then takes all of them to tell the rank; or if
    the outputs are coupled too strongly for their blocks to help.
    """
    scale = magnitude(matrix)
    blocks = GramBlocks(matrix if scale == 1 else matrix / scale, outputs)
    steps = min(max_steps, PATIENCE)
    try:
        top = blocks.end(largest=True, tolerance=tolerance, max_steps=steps)
        bottom = blocks.end(largest=False, norm=top.value, tolerance=tolerance, max_steps=steps)
    except (NotConvergedError, torch.linalg.LinAlgError):
        return None
    p, gap = len(matrix), bottom.value / (EPS * top.value)
    residual = max(top.error, bottom.error + 1 / gap) if gap > p else torch.inf
    if residual > RESOLVED:
        return None
    return ConditionNumber(
        largest=top.value * scale,
        smallest=bottom.value * scale,
        rank=p,
        gap=gap,
        residual=residual,
        method=f"block iteration on the matrix, {top.steps} and {bottom.steps} steps",
    )


class GramBlocks(CoupledBlocks):
    """A Gram matrix with its blocks of all samples for one output, in the basis of outputs that couples them least.

    That basis is the eigenbasis of the mean over samples of the blocks of all outputs for one sample.

    Parameters
    ----------
    matrix
        symmetric, row `i k + a` for output a of sample i
    outputs
        number k of outputs
    """

    def __init__(self, matrix: Float[Tensor, "nk nk"], outputs: int) -> None:
        self.matrix = self.like = matrix
        self.outputs, self.inputs, self.outermost = outputs, len(matrix) // outputs, set(range(outputs))
        self.groups = [range(i, i + 1) for i in range(outputs)]
        samples = matrix.view(self.inputs, outputs, self.inputs, outputs)
        _, self.rotation = torch.linalg.eigh(torch.einsum("iaib->ab", samples))
        self.blocks = matrix.new_empty(outputs, self.inputs, self.inputs)
        for rows, sample in zip(self.blocks.unbind(1), samples, strict=True):
            rotated = (self.rotation.mT @ sample.flatten(1)).view_as(sample)
            torch.matmul(rotated, self.rotation.mT[:, :, None], out=rows[:, :, None])

    def apply(self, x: Float[Tensor, "p b"]) -> Float[Tensor, "p b"]:  # noqa: D102
        return (x.mT.contiguous() @ self.matrix).mT  # the matrix is symmetric, and this is up to three times faster

    def block(self, i: int) -> Float[Tensor, "r r"]:  # noqa: D102
        return self.blocks[i]

    def split(self, x: Float[Tensor, "p b"]) -> Float[Tensor, "k r b"]:  # noqa: D102
        return (self.rotation.mT @ x.reshape(self.inputs, self.outputs, -1)).transpose(0, 1)

    def join(self, x: Float[Tensor, "k r b"]) -> Float[Tensor, "p b"]:  # noqa: D102
        return (self.rotation @ x.transpose(0, 1)).reshape(len(self.matrix), -1)

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
