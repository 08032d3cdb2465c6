"""nngeometry: the Fisher matrix of logits, the Gauss-Newton matrix of the cross-entropy, by products."""

from torch.utils.data import DataLoader, TensorDataset

from tests.benchmarks.peers.common import Unable
from tests.benchmarks.peers.networks import array, gradient, in_torch, vector  # noqa: F401

PACKAGES = ("nngeometry", "torch")
LARGEST = 2**28  # bytes of the Jacobian that its decomposition may hold


def fisher(problem, representation):
    from nngeometry.layercollection import LayerCollection
    from nngeometry.metrics import FIM

    module, x, y = in_torch(problem)
    loader = DataLoader(TensorDataset(x, y), batch_size=len(x))
    layers = LayerCollection.from_model(module)
    made = FIM(module, loader, representation, "classif_logits", function=lambda x, _: module(x))
    return made, layers


def product(problem):
    from nngeometry.object import PMatImplicit, PVector

    matrix, layers = fisher(problem, PMatImplicit)
    v = PVector(layers, vector_repr=vector(problem))
    return lambda: array(matrix.mv(v).to_torch())


def largest(problem):
    from nngeometry.object import PMatLowRank

    module, x, _ = in_torch(problem)
    gib = 4 * problem.v.size * module(x[:1]).numel() * len(x) / 2**30
    if gib * 2**30 > LARGEST:
        raise Unable(f"It decomposes the whole Jacobian, here {gib:.1f} GiB.")

    def found():
        matrix = fisher(problem, PMatLowRank)[0]
        matrix.compute_eigendecomposition()
        return float(matrix.get_eigendecomposition()[0].max()), None

    return found


def gram(problem):
    from nngeometry.gram import GramMatrix

    module, x, y = in_torch(problem)
    loader = DataLoader(TensorDataset(x, y), batch_size=len(x))

    def found():
        its = GramMatrix(module, loader, function=lambda x, _: module(x)).data  # outputs, samples, outputs, samples
        rows = its.shape[0] * its.shape[1]
        return array(its.permute(1, 0, 3, 2).reshape(rows, rows)) / len(x)

    return found
