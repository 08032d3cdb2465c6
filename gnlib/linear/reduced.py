"""The reduced Gauss-Newton matrix of any network that is linear in its inputs, from the one matrix that it is."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import as_float64
from gnlib.linear.moment import Moment, as_second_moment

COLUMNS = 256  # of the result at a time, and fewer
WORKING = 2**28  # where their derivatives by the weights would take more bytes


def reduced_gauss_newton(
    function: Callable[..., Float[Tensor, "k d"]], weights: Sequence[Tensor], second_moment: Moment
) -> Float[Tensor, "kr kr"]:
    r"""Return the reduced Gauss-Newton matrix of a network that is linear in its inputs.

    Such a network is :math:`f(x) = h(\theta)\, x`, whatever it is in its weights :math:`\theta`: layers without an
    activation, skips, convolutions, batch normalisation on centred data. With :math:`H = \partial h / \partial \theta`
    and the second moment :math:`\Sigma = Q \operatorname{diag}(s) Q^\top` of the data, the matrix

    .. math:: (I_k \otimes \Sigma^{1/2})\, H H^\top (I_k \otimes \Sigma^{1/2})

    has all eigenvalues of the Gauss-Newton matrix that are not zero (Zhao 2024, Eq. 4, for linear layers). It is
    returned in the basis Q, where it has a row for each of the k outputs and the r directions of the data.

    Parameters
    ----------
    function
        h: takes the weights, returns the `(k, d)` matrix that the network multiplies its inputs with
    weights
        tensors of any shapes, which `function` takes one by one
    second_moment
        of the inputs, `(d, d)`, or its factors (:meth:`gnlib.linear.moment.SecondMoment.from_data`)

    Examples
    --------
    Two layers: W and V stretch a direction of the data, which has the variance 4, to 9 + 4 times that.

    >>> import torch
    >>> v, w = torch.diag(torch.tensor([2.0, 1.0])), torch.tensor([[3.0, 0.0]])
    >>> reduced_gauss_newton(lambda v, w: w @ v, [v, w], torch.diag(torch.tensor([4.0, 1.0]))).diagonal()
    tensor([52., 10.], dtype=torch.float64)
    """
    given = [as_float64(weight, f"weights[{i}]") for i, weight in enumerate(weights)]
    basis, eigenvalues = as_second_moment(second_moment)
    root = basis * eigenvalues.sqrt()

    def seen(*weights: Tensor) -> Float[Tensor, "k r"]:
        matrix = function(*weights)
        if matrix.ndim != 2 or matrix.shape[1] != len(root):
            shape = tuple(matrix.shape)
            raise ValueError(f"function returns {shape}; a (k, {len(root)}) matrix was expected, as the data have.")
        return matrix @ root

    outputs, pull = torch.func.vjp(seen, *given)[:2]
    push = torch.func.vjp(pull, torch.zeros_like(outputs))[1]  # the transpose of the transpose

    def product(u: Float[Tensor, "k r"]) -> Float[Tensor, "k r"]:
        return push(pull(u))[0]

    units = torch.eye(outputs.numel(), dtype=outputs.dtype, device=outputs.device).view(-1, *outputs.shape)
    columns = max(min(COLUMNS, WORKING // sum(weight.nbytes for weight in given)), 1)
    matrix = torch.vmap(product, chunk_size=columns)(units).flatten(1)
    return (matrix + matrix.mT) / 2
