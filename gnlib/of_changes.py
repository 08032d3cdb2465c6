"""What to change in a network: advice, and the report that it stands in."""

from dataclasses import replace
from typing import Any

from gnlib.advice.suggestions import Advice, nothing_for
from gnlib.asked import Asked, Trials
from gnlib.diagnosis.overview import Overview, overview_of
from gnlib.diagnosis.report import Report, report_on
from gnlib.jacobian.inputs import Inputs
from gnlib.of_training import OfTraining
from gnlib.problem import Problem
from gnlib.products.side import Side


class OfChanges(OfTraining):
    """The questions to a Gauss-Newton matrix that are about what to change."""

    _asked: Asked

    def report(self, *, budget: float | None = None, held_out: tuple[Inputs, Any] | None = None) -> Report | Overview:
        r"""Return one page: what to change, tried by real steps, how well conditioned the network is, and where from.

        The suggestions are those of :meth:`advice`, and each rate on it took ten real steps on a copy that did not
        explode; both need `y`. To follow the first suggestion is one line, `network = report.apply(0)`, and the same
        report can be asked of that network; the chain ends when nothing gains a fifth.

        Where products with vectors take the place of the matrix (`dtype`), it is what they tell, an
        :class:`gnlib.diagnosis.overview.Overview`. Before a report of more than about ten seconds the time and memory
        of its matrices are announced on the standard error.

        Parameters
        ----------
        budget, held_out
            as for :meth:`advice`

        Examples
        --------
        >>> import torch, gnlib
        >>> _ = torch.manual_seed(0)
        >>> x = torch.tensor([[90.0, 1.0], [100.0, 2.0], [110.0, 1.0], [90.0, 1.0]])
        >>> report = gnlib.GaussNewton(torch.nn.Linear(2, 1), x, x[:, 1:]).report(budget=60)
        >>> "the inputs" in report.suggestions[0].what, report.apply(0)(x).shape
        (True, torch.Size([4, 1]))
        >>> report.condition.rank, report.full, [str(pair) for pair in report.culprits.equal_samples]
        (3, 4, ['0 and 3 are equal'])
        """
        side = self._unchanged_side()
        if side is None:
            found: Report | Overview = report_on(self._unchanged(), self._optimizer)
        else:
            found = overview_of(side, self._memory, self._optimizer)
        if self._asked.y is None:
            return found
        try:
            trials = Trials(self._asked, self._optimizer, held_out)
            return replace(found, advice=trials.advice(self._again, budget), safe=trials.safe_rates(found.rates))
        except (RuntimeError, TypeError, NotImplementedError) as error:  # of a module that cannot be copied, say
            return replace(found, advice=nothing_for(error, budget or 0.0))

    def advice(self, *, budget: float | None = None, held_out: tuple[Inputs, Any] | None = None) -> Advice:
        """Return what to change in the network, its inputs or its targets, each change tried by real steps.

        Candidates are standardised inputs and targets, normalisations after each hidden layer, other weights to begin
        with, and smaller branches, one on top of the other. What an engineer does unasked is one of them. That and
        those that gradient descent of the linear model waits least with, on the way to a loss that is common to all,
        are trained on copies by the optimiser, at the best of some learning rates; then what differs by one change from
        the best of them, and all that was measured, as long as there is time. A run that is behind another one ends
        early; what is not faster by a fifth is not suggested, and a part that gains nothing is left out. To follow is
        one line: `network = advice.apply(0)` returns a network for the same inputs, with outputs in the same units, of
        which advice can be asked again. What was not tried is named, with the reason.

        Parameters
        ----------
        budget
            seconds that it may take, of which networks that are measured may need some more; the time of three epochs
            of 1,000 samples if it is not given, at least 5 s and at most 60
        held_out
            inputs and targets that nothing is trained on: a suggestion that is worse on them says so

        Raises
        ------
        ValueError
            No targets, a budget that is not positive, or an optimiser by a name that is not known.

        Examples
        --------
        >>> import torch, gnlib
        >>> _ = torch.manual_seed(0)
        >>> x = 100 + torch.randn(20, 3)
        >>> network = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        >>> advice = gnlib.GaussNewton(network, x, x[:, :1] - 100).advice(budget=60)
        >>> "normalisation" in advice.suggestions[0].what, advice.apply(0)(x).shape
        (True, torch.Size([20, 1]))
        """
        self._unchanged_side()
        return Trials(self._asked, self._optimizer, held_out).advice(self._again, budget)

    def _again(self, asked: Asked) -> Problem | Side:
        """Return the matrix of another question, or its products with vectors."""
        kind: Any = type(self)
        options = {name: getattr(asked, name) for name in ("output", "mode", "memory", "dtype")}
        other: OfChanges = kind(asked.module, asked.x, asked.y, asked.loss, **options)
        return other._unchanged_side() or other._unchanged()
