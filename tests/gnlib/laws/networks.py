"""Random deep linear networks, and their Gauss-Newton matrix as if the outputs were independent."""

import numpy as np

OUTPUTS = 120  # over which the norms of the rows are averaged


def spectrum(widths, *, rank=None, scale=1.0, skip=0.0, orthogonal=False, data=None, weights=None, rates=1.0, seed=0):
    """Eigenvalues of sum_l r_l a_l S^1/2 B_l' B_l S^1/2, widths [inputs, ..., last hidden one], a_l = ||A_l||^2 / k."""
    rng = np.random.default_rng(seed)
    count = len(widths)
    layers = []
    shapes = zip(
        [*widths[1:], OUTPUTS], widths, np.broadcast_to(scale, count), np.broadcast_to(skip, count), strict=True
    )
    for rows, columns, s, b in shapes:
        if orthogonal:
            q, _ = np.linalg.qr(rng.standard_normal((max(rows, columns), min(rows, columns))))
            layers.append(s * (q if rows >= columns else q.T))
        else:
            layers.append(s * rng.standard_normal((rows, columns)) / columns**0.5 + b * np.eye(rows, columns))
    root = np.ones(rank or widths[0]) if data is None else np.sqrt(data)
    below, total = np.eye(widths[0])[:, : len(root)] * root, 0
    if weights is None:
        above = [np.eye(OUTPUTS)]
        for w in layers[:0:-1]:
            above.append(above[-1] @ w)
        weights = [np.square(a).sum() / OUTPUTS for a in above[::-1]]
    for w, weight in zip(layers, np.multiply(weights, rates), strict=True):
        total = total + weight * below.T @ below
        below = w @ below
    return np.linalg.eigvalsh(total)
