"""What one writes with `torch.func` alone: two derivatives and the softmax, Lanczos around them, Jacobians for a Gram.

Batch normalisation in training mode writes its running statistics, which `torch.func` refuses; its own remedy, modules
without statistics, is what it gets there.
"""

import torch
from gnbook.cost.networks import contracted
from torch.func import functional_call, jvp, replace_all_batch_norm_modules_, vjp

from tests.benchmarks.peers.common import LANCZOS
from tests.benchmarks.peers.networks import array, gradient, in_torch, vector  # noqa: F401

PACKAGES = ("torch",)


def product_of(problem):
    module, x, y = in_torch(problem)
    if module.training:
        replace_all_batch_norm_modules_(module)
    parameters = {name: p.detach() for name, p in module.named_parameters()}
    held = dict(module.named_buffers())

    def outputs(parameters):
        return functional_call(module, {**held, **parameters}, (x,))

    def of(v):
        pieces = v.split([p.numel() for p in parameters.values()])
        along = {name: piece.view_as(p) for (name, p), piece in zip(parameters.items(), pieces, strict=True)}
        _, change = jvp(outputs, (parameters,), (along,))
        f, back = vjp(outputs, parameters)
        p = f.softmax(1)
        curved = p * change - p * (p * change).sum(1, keepdim=True)
        (found,) = back(curved / y.numel())
        return torch.cat([g.flatten() for g in found.values()])

    return of


def product(problem):
    of, v = product_of(problem), vector(problem)
    return lambda: array(of(v))


def largest(problem, tolerance=1e-3):
    of = product_of(problem)

    def found():
        """Lanczos with reorthogonalisation, until the residual of the largest Ritz value is small."""
        v = torch.randn(problem.v.size, generator=torch.Generator().manual_seed(0))
        basis, matrix = [v / v.norm()], torch.zeros(LANCZOS * 2 + 1, LANCZOS * 2 + 1)
        for step in range(2 * LANCZOS):
            w = of(basis[-1])
            matrix[step, step] = w @ basis[-1]
            for _ in range(2):
                for q in basis:
                    w = w - (w @ q) * q
            values, vectors = torch.linalg.eigh(matrix[: step + 1, : step + 1])
            matrix[step, step + 1] = matrix[step + 1, step] = beta = w.norm()
            if beta * vectors[-1, -1].abs() <= tolerance * values[-1]:
                break
            basis.append(w / beta)
        return float(values[-1]), step + 1

    return found


def gram(problem):
    module, x, _ = in_torch(problem)
    return lambda: array(contracted(module, x))
