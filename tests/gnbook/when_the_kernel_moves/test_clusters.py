"""Samples in three clusters."""

import torch
from gnbook.when_the_kernel_moves.clusters import CENTRES, three_clusters, with_one


def test_the_clusters_are_where_they_should_be():
    x, y = three_clusters(range(50), 200)
    assert x.shape == (50, 200, 1) and y.shape == (50, 200, 3)
    labels = y.argmax(-1)
    assert torch.allclose(torch.bincount(labels.flatten()) / labels.numel(), torch.tensor(1 / 3), atol=0.02)
    for label, centre in enumerate(CENTRES):
        some = x[labels == label]
        assert abs(some.mean() - centre) < 0.06 and abs(some.std() - 1) < 0.05
    alone, _ = three_clusters([7], 200)
    assert torch.equal(alone[0], x[7]) and torch.equal(with_one(x)[..., 1], torch.ones(50, 200))
