"""Graphs: Zachary's karate club, generated graphs whose rule stands here, and layers of PyTorch Geometric."""

from typing import Any

import torch
from torch import Tensor, nn

from tests.benchmarks.trial.cases import Case, Data, generator, parted, standardised
from tests.gnlib.networks import Whole

CLASSES, NUMBERS = "cross_entropy", "mse"


def random_graphs(n: int = 248, nodes: int = 10) -> tuple[Tensor, Tensor, Tensor]:
    """Return features, neighbours and the probability of an edge, between 0.15 and 0.6, of random graphs.

    Features of a node are its degree, a mass between 1 and 90, and a charge of deviation 0.1.
    """
    g = generator()
    p = 0.15 + 0.45 * torch.rand(n, 1, 1, generator=g)
    upper = (torch.rand(n, nodes, nodes, generator=g) < p).float().triu(1)
    edges = upper + upper.mT
    mass = torch.randint(1, 90, (n, nodes), generator=g).float()
    return torch.stack([edges.sum(2), mass, 0.1 * torch.randn(n, nodes, generator=g)], 2), edges, p[:, 0]


def energies() -> Data:
    """The sum over edges of the product of masses, in hundreds."""
    x, edges, _ = random_graphs()
    mass = x[:, :, 1]
    return parted((x, edges), (mass[:, :, None] * mass[:, None] * edges).sum((1, 2))[:, None] / 200, n=48)


def density() -> Data:
    """Whether an edge has a probability below 0.3, or above 0.45, or between."""
    x, edges, p = random_graphs()
    return parted((x, edges), ((p > 0.3).long() + (p > 0.45).long())[:, 0], n=48)


def prepared_charges() -> Data:
    """The charge of a node's neighbours, weighted by charge, all standardised; nodes with no neighbour have 0."""
    x, edges, _ = random_graphs()
    charge = 10 * x[:, :, 2]
    y = (charge[:, :, None] * charge[:, None] * edges).sum((1, 2))[:, None]
    whole = parted(torch.cat([x, edges], 2), y, n=48)
    features = standardised(whole._replace(x=whole.x[:, :, :3], held_x=whole.held_x[:, :, :3]), 0, 1, targets=True)
    return features._replace(
        x=(features.x, whole.x[:, :, 3:].contiguous()), held_x=(features.held_x, whole.held_x[:, :, 3:].contiguous())
    )


def karate() -> Data:
    """The 34 members, each of features of its own, and the four groups that they belong to; none is held out."""
    from torch_geometric.datasets import KarateClub

    graph = KarateClub()[0]
    return Data(graph.x, graph.y, graph.x, graph.y)


def blocks() -> tuple[Tensor, Tensor, Tensor]:
    """Return features, edges and groups of 60 nodes: edges have probability 0.25 within a group and 0.03 between."""
    g = generator()
    group = torch.arange(60) % 3
    p = torch.where(group[:, None] == group, 0.25, 0.03)
    upper = (torch.rand(60, 60, generator=g) < p).triu(1)
    x = 100 + 30 * (group[:, None] == torch.arange(3)) + 40 * torch.randn(60, 3, generator=g)
    return torch.cat([x, torch.randn(60, 3, generator=g)], 1), (upper | upper.mT).nonzero().mT, group


def members() -> Data:
    x, _, y = blocks()
    return Data(x, y, x, y)


def pooled(one: nn.Module, two: nn.Module, outputs: int, norm: bool = False) -> nn.Module:
    """Two layers on a batch of graphs, and a linear map of the mean over nodes."""

    def forward(self: Any, x: Tensor, edges: Tensor) -> Tensor:
        x = torch.relu(self.first(self.one(x, edges)))
        return self.head(torch.relu(self.second(self.two(x, edges))).mean(1))

    first, second = (nn.LayerNorm(24) if norm else nn.Identity() for _ in range(2))
    return Whole(forward, one=one, two=two, head=nn.Linear(24, outputs), first=first, second=second)


def on_nodes(one: nn.Module, two: nn.Module, edges: Tensor) -> nn.Module:
    """Two layers on one graph, of which the nodes are the samples."""
    net = Whole(lambda self, x: self.two(torch.relu(self.one(x, self.edges)), self.edges), one=one, two=two)
    net.register_buffer("edges", edges)
    return net


def dense(name: str, outputs: int, norm: bool = False) -> nn.Module:
    from torch_geometric import nn as layers

    kind = getattr(layers, name)
    return pooled(kind(3, 24), kind(24, 24), outputs, norm)


def isomorphism() -> nn.Module:
    from torch_geometric.nn import DenseGINConv

    def perceptron(fan_in: int) -> nn.Module:
        return nn.Sequential(nn.Linear(fan_in, 24), nn.ReLU(), nn.Linear(24, 24))

    return pooled(DenseGINConv(perceptron(3)), DenseGINConv(perceptron(24)), 3)


def of_club() -> nn.Module:
    from torch_geometric.datasets import KarateClub
    from torch_geometric.nn import GCNConv

    return on_nodes(GCNConv(34, 16), GCNConv(16, 4), KarateClub()[0].edge_index)


def attention() -> nn.Module:
    from torch_geometric.nn import GATConv

    return on_nodes(GATConv(6, 8, heads=2), GATConv(16, 3), blocks()[1])


CASES = {
    "energies-gcn": Case(
        "torch_geometric", "graph convolutions of batches", lambda: dense("DenseGCNConv", 1), energies, NUMBERS
    ),
    "density-gin": Case("torch_geometric", "graph isomorphism network", isomorphism, density, CLASSES),
    "charges-sage-prepared": Case(
        *("torch_geometric", "GraphSAGE with LayerNorm", lambda: dense("DenseSAGEConv", 1, norm=True)),
        *(prepared_charges, NUMBERS),
        prepared=True,
    ),
    "karate-gcn": Case("torch_geometric", "graph convolutions of nodes", of_club, karate, CLASSES, together=True),
    "blocks-attention": Case("torch_geometric", "graph attention", attention, members, CLASSES, together=True),
}
