"""Oracles of the tests: plain, slow, and written without gnlib."""

from itertools import pairwise

import mpmath
import torch


def normal(*shape, seed):
    """Independent standard normal numbers."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def network(widths, *, seed):
    """Weights of shape (out, in), with entries of variance 1 / in."""
    return [normal(o, i, seed=100 * seed + layer) / i**0.5 for layer, (i, o) in enumerate(pairwise(widths))]


def samples(n, d, *, rank=None, seed):
    """Data in rows, of full rank or of the rank asked for."""
    if rank is None:
        return normal(n, d, seed=seed)
    return normal(n, rank, seed=seed) @ normal(rank, d, seed=seed + 1)


def orthogonal(rows, columns, *, seed):
    """Orthonormal columns."""
    return torch.linalg.qr(normal(rows, columns, seed=seed)).Q


def with_spectrum(values, *, seed):
    """A symmetric matrix with these eigenvalues, up to its rounding."""
    values = torch.as_tensor(values, dtype=torch.float64)
    q = orthogonal(len(values), len(values), seed=seed)
    matrix = q * values @ q.T
    return (matrix + matrix.T) / 2


def products(weights, skip=0.0):
    """The pairs (A_l, B_l) of products above and below each layer, each from its definition."""
    weights = [w + skip * torch.eye(*w.shape, dtype=w.dtype) for w in weights]
    pairs = []
    for layer, w in enumerate(weights):
        above = torch.eye(w.shape[0], dtype=w.dtype)
        for factor in weights[layer + 1 :]:
            above = factor @ above
        below = torch.eye(weights[0].shape[1], dtype=w.dtype)
        for factor in weights[:layer]:
            below = factor @ below
        pairs.append((above, below))
    return pairs


def kronecker_formula(weights, x, skip=0.0):
    """The reduced Gauss-Newton matrix, of size k d (Zhao 2024, Eq. 5)."""
    _, s, vt = torch.linalg.svd(x, full_matrices=False)
    root = vt.T * s / len(x) ** 0.5 @ vt  # the symmetric square root of x.T @ x / n
    return sum(torch.kron(a @ a.T, root @ b.T @ b @ root).contiguous() for a, b in products(weights, skip))


def spectrum(matrix):
    """All eigenvalues, descending."""
    return torch.linalg.eigvalsh(matrix).flip(0)


def assert_same_nonzero_spectrum(values, expected, tolerance):
    """Compare descending eigenvalues, the shorter list continued by zeros."""
    size = max(len(values), len(expected))
    padded, wanted = (torch.zeros(size, dtype=torch.float64) for _ in range(2))
    padded[: len(values)], wanted[: len(expected)] = values, expected
    torch.testing.assert_close(padded, wanted, rtol=0, atol=tolerance * expected[0].item())


def mp_spectrum(matrix, digits=50):
    """Eigenvalues of a symmetric matrix of doubles or mpmath numbers, descending."""
    with mpmath.workdps(digits):
        matrix = _mp(matrix)
        return sorted(mpmath.eigsy((matrix + matrix.T) / 2, eigvals_only=True), reverse=True)


def mp_kronecker_sum(left, right, digits=50):
    """The matrix sum_l left_l kron right_l, without rounding."""
    with mpmath.workdps(digits):
        total = 0
        for a, b in zip(left, right, strict=True):
            a, b = _mp(a), _mp(b)
            term = mpmath.matrix(a.rows * b.rows)
            for i in range(term.rows):
                for j in range(term.cols):
                    (p, q), (r, s) = divmod(i, b.rows), divmod(j, b.rows)
                    term[i, j] = a[p, r] * b[q, s]
            total = term + total if total else term
        return total


def mp_gauss_newton(weights, basis, eigenvalues, digits=50):
    """Eigenvalues of the Gauss-Newton matrix on basis diag(eigenvalues) basis.T, descending.

    Those below 10**-40 of the largest are the rounding of fifty digits, and left out.
    """
    with mpmath.workdps(digits):
        weights = [_mp(w) for w in weights]
        weights[0] = weights[0] * _mp(basis)
        root = mpmath.diag([mpmath.sqrt(s) for s in eigenvalues.tolist()])
        left, right = [], []
        for layer, w in enumerate(weights):
            above, below = mpmath.eye(w.rows), mpmath.eye(len(eigenvalues))
            for factor in weights[layer + 1 :]:
                above = factor * above
            for factor in weights[:layer]:
                below = factor * below
            left.append(above * above.T)
            right.append(root * below.T * below * root)
        values = mp_spectrum(mp_kronecker_sum(left, right, digits), digits)
        return [v for v in values if v > values[0] * mpmath.mpf(10) ** (10 - digits)]


def _mp(matrix):
    return mpmath.matrix(matrix.tolist()) if isinstance(matrix, torch.Tensor) else matrix


def autograd_gram(outputs, weights, n):
    """The Gram matrix J J^T / n of outputs(*weights), of shape (n, k), sample-major."""
    parts = torch.autograd.functional.jacobian(lambda *w: outputs(*w).flatten(), tuple(weights))
    jacobian = torch.cat([part.flatten(1) for part in parts], 1)
    return jacobian @ jacobian.T / n


def leaky_relu_units(weights, x, slope):
    """Yield each unit of W leaky_relu(V x): its values, their derivative by its weights, and its column of W."""
    for v, w in zip(weights[0], weights[1].T, strict=True):
        derivative = torch.diag(torch.ones_like(x @ v).where(x @ v > 0, slope))
        yield derivative @ x @ v, derivative @ x, w


def literal_eq_10(units, n):
    """The sum over units of Kronecker products of size n k, as it is written in Zhao 2024, Eq. 10, over n."""
    return sum(
        torch.kron(j @ j.T, torch.outer(w, w)) + torch.kron(torch.outer(h, h), torch.eye(len(w), dtype=w.dtype))
        for h, j, w in units
    ).div_(n)


def norm(matrix):
    """The spectral norm."""
    return torch.linalg.matrix_norm(matrix, 2).item()


def ends(matrix):
    """The extreme eigenvalues."""
    values = spectrum(matrix)
    return values[-1].item(), values[0].item()


def singular(matrix):
    """The singular values, descending."""
    return torch.linalg.svdvals(matrix)


def identity(n):
    """The matrix of a skip around n units."""
    return torch.eye(n, dtype=torch.float64)


def with_skip(weight, skip):
    """A layer with a skip of this weight, beside more outputs or fewer, too."""
    return weight + skip * torch.eye(*weight.shape, dtype=weight.dtype)


def relative(found, expected):
    """The distance of two matrices over the norm of the second."""
    return ((found - expected).norm() / expected.norm()).item()
