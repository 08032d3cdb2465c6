r"""How the condition number grows with the number of samples.

The matrix of some of the samples is a principal submatrix of that of all, up to the factor n of the mean. So its
eigenvalues interlace (Cauchy): the smallest is no smaller and the largest no larger than those of the whole, and kappa
of fewer samples is a lower bound of kappa of more, as long as both have full rank. What it is of all data one does not
know: this is why kappa stands beside its n, and beside its trend.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch

from gnlib.checks import numerical_rank
from gnlib.diagnosis.waits import residual_of
from gnlib.laws.waiting import waiting
from gnlib.plain import as_dict
from gnlib.problem import Problem

SHARES = 4, 2, 1  # of the samples: a quarter, half, all
LEAST = 8  # samples of a quarter


@dataclass(frozen=True)
class Growth:
    """Condition numbers of a quarter, half and all of the samples.

    Attributes
    ----------
    samples, kappas
        how many, and the condition number of each
    effective
        the largest eigenvalue over the one that a tenth of the loss waits for, of each; empty without targets
    seed
        of the order that parts of the samples are taken in
    """

    samples: tuple[int, ...]
    kappas: tuple[float, ...]
    effective: tuple[float, ...]
    seed: int = 0

    to_dict = as_dict

    @property
    def exponent(self) -> float:
        """Of n, like which kappa grows from half of the samples to all."""
        (n, kappa), (more, larger) = [*zip(self.samples, self.kappas, strict=True)][-2:]
        return math.log(larger / kappa) / math.log(more / n)

    @property
    def words(self) -> tuple[str, str]:
        """What grows, and of how many samples it was what."""
        kappas = ", ".join(f"{k:.3g} of {n}" for n, k in zip(self.samples, self.kappas, strict=True))
        effective = ", ".join(f"{e:.3g}" for e in self.effective)
        waits = f"; the effective condition number is {effective}" if effective else ""
        return f"kappa grows like n^{self.exponent:.1f}", f"{kappas}: one of all data is larger still{waits}"


def growth_of(problem: Problem, seed: int = 0, goal: float = 0.1) -> Growth | None:
    """Return how kappa grows over parts of the samples, each within the next; None where that is not known."""
    n, r = len(problem.root), problem.root.shape[2]
    if n < LEAST * SHARES[0] or problem.networks[0].coupled or not problem.condition.resolved:
        return None
    if problem.condition.rank < problem.loss_rows:
        return None
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed)).to(problem.outputs.device)
    residual = residual_of(problem).view(n, r) if problem.has_targets else None
    samples, kappas, effective = [], [], []
    for share in SHARES:
        chosen = order[: n // share].sort().values
        rows = (chosen[:, None] * r + torch.arange(r, device=chosen.device)).flatten()
        values, vectors = problem.spectrum if share == 1 else torch.linalg.eigh(problem.loss_gram[rows][:, rows])
        if numerical_rank(values, len(values)) < len(values):
            return None
        samples.append(len(chosen))
        kappas.append(float(values[-1] / values[0]))
        if residual is not None:
            squares = (vectors.mT @ residual[chosen].flatten()).square()
            effective.append(waiting(values, squares, 1 / float(values[-1]), goal).effective_condition_number)
    if not all(a < b for a, b in pairwise(kappas)):  # by rounding alone: they interlace
        return None
    return Growth(tuple(samples), tuple(kappas), tuple(effective), seed)
