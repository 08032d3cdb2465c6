"""The Gauss-Newton matrix of a deep linear network, as a sum of Kronecker products."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import as_weights
from gnlib.eigen.scale import all_restored, scaled
from gnlib.linear.moment import Moment, as_second_moment
from gnlib.linear.network import add_skip
from gnlib.operators import LayeredSum

WHITE_SPREAD = 1e-13  # spread of the eigenvalues of whitened data, by rounding


def linear_gauss_newton(weights: Sequence[Tensor], second_moment: Moment, skip: float = 0.0) -> LayeredSum:
    r"""Return the reduced Gauss-Newton matrix of a deep linear network.

    With :math:`A_\ell = W_L \cdots W_{\ell+1}`, :math:`B_\ell = W_{\ell-1} \cdots W_1` and the second moment
    :math:`\Sigma` of the data, it is (Zhao 2024, Eq. 4 and 5)

    .. math:: \widehat G = \sum_{\ell=1}^{L} A_\ell A_\ell^\top \otimes \Sigma^{1/2} B_\ell^\top B_\ell \Sigma^{1/2},

    of size `k d`, and has the non-zero eigenvalues of the `p x p` matrix :math:`\frac1n \sum_i J_i^\top J_i`.

    Parameters
    ----------
    weights
        matrices of shape `(out, in)`, input layer first
    second_moment
        the `(d, d)` second moment of the inputs, or its factors, which are more accurate where the data
        are badly conditioned (:meth:`gnlib.linear.moment.SecondMoment.from_data`)
    skip
        `skip * eye(out, in)` is added to every weight first (Zhao 2024, sec. 4.3)

    Examples
    --------
    >>> import torch
    >>> weights, moment = [torch.diag(torch.tensor([2.0, 1.0]))] * 2, torch.diag(torch.tensor([4.0, 1.0]))
    >>> operator = linear_gauss_newton(weights, moment)
    >>> operator @ torch.ones(4).double()
    tensor([32.,  5., 20.,  2.], dtype=torch.float64)
    """
    moment = as_second_moment(second_moment)
    weights, eigenvalues, basis = restrict_to_range(weights, moment, skip)
    weights, exponents = zip(*map(scaled, weights), strict=True)
    others = [2 * (sum(exponents) - own) for own in exponents]  # of the square of what stands above and below a layer
    squares = (a @ a.mT for a in _products_above(weights))
    left = [all_restored(square, e, "entry of a term") for square, e in zip(squares, others, strict=True)]
    return LayeredSum(torch.stack(left), eigenvalues.sqrt(), weights[:-1], basis, moment.error)


def restrict_to_range(
    weights: Sequence[Tensor], second_moment: Moment, skip: float = 0.0
) -> tuple[list[Tensor], Float[Tensor, " r"], Float[Tensor, "d r"]]:
    r"""Return the weights of the same function on coordinates of its input in the range of the second moment.

    With :math:`\Sigma = Q \operatorname{diag}(s) Q^\top`, inputs are :math:`x = Q z`, so the network with first weight
    :math:`W_1 Q` sees data z whose second moment :math:`\operatorname{diag}(s)` is diagonal and invertible. It returns
    the weights (the first one of shape `(m, r)`), s, and Q of shape `(d, r)`.

    Examples
    --------
    >>> import torch
    >>> (w,), eigenvalues, basis = restrict_to_range([torch.ones(3, 2)], torch.diag(torch.tensor([4.0, 0.0])))
    >>> w.shape, eigenvalues.round(decimals=6)
    (torch.Size([3, 1]), tensor([4.], dtype=torch.float64))
    """
    weights = add_skip(as_weights(weights), skip)
    basis, eigenvalues = as_second_moment(second_moment)
    d = weights[0].shape[1]
    if len(basis) != d:
        raise ValueError(f"second_moment is of size {len(basis)} but weights[0] takes {d} inputs.")
    if len(eigenvalues) == d and eigenvalues.min() >= (1 - WHITE_SPREAD) * eigenvalues.max():
        # White data: any basis is an eigenbasis, and the standard one costs no product and no rounding.
        return weights, eigenvalues, torch.eye(d, dtype=basis.dtype, device=basis.device)
    return [weights[0] @ basis, *weights[1:]], eigenvalues, basis


def partial_products(weights: Sequence[Tensor]) -> list[tuple[Float[Tensor, "k _out"], Float[Tensor, "_in d"]]]:
    r"""Return the products above and below each layer, :math:`(A_\ell, B_\ell)` for :math:`\ell = 1, \dots, L`.

    Examples
    --------
    >>> import torch
    >>> [(a.item(), b.item()) for a, b in partial_products([torch.tensor([[2.0]]), torch.tensor([[3.0]])])]
    [(3.0, 1.0), (1.0, 2.0)]
    """
    first = weights[0]
    identity = torch.eye(first.shape[1], dtype=first.dtype, device=first.device)
    below = [identity, *accumulate(weights[:-1], lambda product, w: w @ product)]
    return list(zip(_products_above(weights), below, strict=True))


def _products_above(weights: Sequence[Tensor]) -> list[Float[Tensor, "k _out"]]:
    last = weights[-1]
    identity = torch.eye(len(last), dtype=last.dtype, device=last.device)
    return [identity, *accumulate(reversed(weights[1:]), torch.matmul)][::-1]
