"""What a Gauss-Newton matrix says by its products with vectors, and of training: rates, steps and loss curves."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from torch.optim import Optimizer

from gnlib.diagnosis.batches import BatchForecast, batch_forecast_of, batch_rate_bound, batch_stable_rate
from gnlib.diagnosis.course import LossBounds, View, loss_bounds_of, room_for, waiting_by_products
from gnlib.diagnosis.forecast import Forecast
from gnlib.diagnosis.foretell import forecast_of, forecast_of_side
from gnlib.diagnosis.rates import StableRate, stable_rate_of, stable_rate_of_largest
from gnlib.diagnosis.waits import waiting_of
from gnlib.eigen.davidson import ExtremePair
from gnlib.eigen.density import Estimate, SpectralDensity, spectral_density, trace
from gnlib.eigen.top import Eigenpairs, largest_eigenpairs
from gnlib.laws.waiting import Waiting
from gnlib.operators import SymmetricOperator
from gnlib.problem import Problem
from gnlib.products.side import Side
from gnlib.refused import Refused


class OfTraining(ABC):
    """The questions to a Gauss-Newton matrix that some tens of products with vectors answer, and those about training.

    What is true of the first: no matrix is formed, and the answer is in double precision, or in the precision that
    `dtype` names.
    """

    _memory: float  # GiB
    _optimizer: str | Optimizer | None
    _problem: Problem | str

    @abstractmethod
    def operator(self) -> SymmetricOperator:
        """Return the matrix by its products with vectors."""

    @abstractmethod
    def _view(self) -> View:
        """Return the matrix with the residual."""

    @abstractmethod
    def _rounding(self) -> float:
        """Return the relative error of a product."""

    @abstractmethod
    def _loss_name(self) -> str:
        """Return the name of the loss."""

    @abstractmethod
    def _unchanged(self) -> Problem:
        """Return the module on its data, if its parameters are what they were."""

    @abstractmethod
    def _unchanged_side(self) -> Side | None:
        """Return the matrix by its products, where these take its place."""

    @abstractmethod
    def largest_eigenvalue(self, *, tolerance: float | None = None, max_steps: int = 500) -> ExtremePair:
        """Return the largest eigenvalue by products with vectors."""

    def eigenpairs(self, k: int = 1, *, tolerance: float = 1e-3, products: int = 200, seed: int = 0) -> Eigenpairs:
        r"""Return the k largest eigenvalues with their eigenvectors, by the Lanczos process.

        An eigenvector is one of :math:`\frac1n R^\top J J^\top R`, or with `dtype` of the smaller side: of
        :math:`\frac1n J^\top H J` where there are fewer parameters than outputs.

        Parameters
        ----------
        k
            how many; an eigenvalue that is there several times is found once
        tolerance
            relative error of the values, estimated by the gaps between them, at which no more products are taken
        products
            that may be taken, besides one for each pair
        seed
            of the random vector that the process begins with

        Raises
        ------
        NotConvergedError
            After so many products.

        Examples
        --------
        >>> import torch, gnlib
        >>> g = gnlib.GaussNewton(torch.nn.Linear(2, 1, bias=False), torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
        >>> g.eigenpairs(2).values
        tensor([2.0000, 0.5000], dtype=torch.float64)
        """
        operator = self.operator()
        room = self._room(operator, 1)
        return largest_eigenpairs(operator, k, tolerance=tolerance, products=min(products, room), seed=seed)

    def trace(self, *, products: int = 60, seed: int = 0) -> Estimate:
        """Estimate the trace of the matrix, with its standard error, by Hutch++.

        Parameters
        ----------
        products
            with vectors, at least 6
        seed
            of the random vectors

        Examples
        --------
        >>> import torch, gnlib
        >>> g = gnlib.GaussNewton(torch.nn.Linear(2, 1, bias=False), torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
        >>> print(g.trace())
        2.5 +- 0
        """
        operator = self.operator()
        self._room(operator, products // 3)
        return trace(operator, products=products, seed=seed)

    def spectral_density(self, *, vectors: int = 5, steps: int = 30, seed: int = 0) -> SpectralDensity:
        """Estimate how all eigenvalues are spread, by the Lanczos process from random vectors.

        Parameters
        ----------
        vectors
            random ones, at least two, from which the errors are told
        steps
            products with each
        seed
            of the vectors

        Examples
        --------
        >>> import torch, gnlib
        >>> g = gnlib.GaussNewton(torch.nn.Linear(2, 1, bias=False), torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
        >>> density = g.spectral_density()
        >>> print(density.below(1.0), "of", density.size, "below 1")
        1 to 1 of 2 below 1
        """
        operator = self.operator()
        self._room(operator, steps)
        density = spectral_density(operator, vectors=vectors, steps=steps, seed=seed)
        rounding = self._rounding() * density.largest
        return replace(density, zero=max(density.zero, rounding))

    def _room(self, operator: SymmetricOperator, needed: int) -> int:
        """Return how many vectors there is memory for, or refuse fewer than are needed."""
        return room_for(self._memory, operator.shape[0], needed)

    def loss_bounds(
        self, *, rate: float | None = None, steps: int = 1000, products: int = 120, within: float = 1.05
    ) -> LossBounds:
        r"""Bound the losses of full-batch gradient descent from both sides, without a matrix: for networks of any size.

        The losses of the linear model, for the squared error, are an integral against the spectrum of the Gram matrix,
        which some tens of products with vectors bound from below and from above. The upper bound presumes that the
        products have found the largest eigenvalue, of which they prove that there is one so large and no more.

        Parameters
        ----------
        rate
            learning rate, at most 2 over the largest eigenvalue; one over it, if it is not given
        steps
            number of steps
        products
            with vectors that may be taken
        within
            factor between the bounds at the last step at which no more are taken; 1.05 also where they differ by less
            than a thousandth of the first loss, and other factors in proportion

        Raises
        ------
        ValueError
            No targets, a loss that is not the squared error, a rate at which the loss grows or that is not positive,
            numbers of steps or products that are none.

        References
        ----------
        G. H. Golub, G. Meurant (2010), Matrices, moments and quadrature with applications, Princeton.

        Examples
        --------
        >>> import torch, gnlib
        >>> line = torch.nn.Linear(2, 1, bias=False).double()
        >>> _ = torch.nn.init.zeros_(line.weight)
        >>> x, y = torch.tensor([[2.0, 0.0], [0.0, 1.0]]).double(), torch.tensor([[1.0], [1.0]]).double()
        >>> print(gnlib.GaussNewton(line, x, y).loss_bounds(rate=0.5, steps=5))
        loss 0.5, after 5 steps at the rate 0.5 0.01408 to 0.01408
        a tenth of the loss after 3 to 3 steps; 5 products
        """
        if self._loss_name() != "mse":
            raise Refused(
                "needs-matrix",
                f"The bounds are of the squared error, and the loss is {self._loss_name()}; pass loss='mse', or ask "
                "for waiting(), which knows the quadratic model of other losses too.",
            )
        return loss_bounds_of(self._view(), rate, steps=steps, products=products, within=within)

    def stable_rate(self, *, batch: int | None = None) -> StableRate:
        r"""Return the largest learning rate at which the optimiser is stable on the quadratic model of the loss.

        It is 2 over the largest eigenvalue for gradient descent and :math:`2 (1 + \beta)` over it with momentum
        (:class:`gnlib.diagnosis.descent.Rule`); for Adam with :math:`\beta_1 = 0.9` it is 38 over the largest
        eigenvalue of :math:`P^{-1} G`, with the factors P that it divides by. Of several groups it is the rate of the
        first, the others in proportion. Its own state makes P; before its first
        step P is the root of the diagonal of G, of the size of the gradient, which takes `y`. With `y` it is at most a
        sixth of the rate at which the first step, of that size in each parameter, makes the loss ten times larger.

        With `batch` it is the largest rate at which the mean of the loss over runs of gradient descent stays bounded,
        where each step draws so many samples anew. It is no larger than that of full batches, and with `dtype` a lower
        bound of it. Single runs may bear somewhat larger ones; a network that is not linear may blow up far below it.

        Parameters
        ----------
        batch
            samples in a mini-batch; all of them, if it is not given

        Raises
        ------
        TypeError
            An optimiser of another kind.
        ValueError
            An optimiser of other parameters, or without a state where `y` is missing; with `batch` one that is not
            plain gradient descent, samples that depend on each other, or fewer samples than are to be drawn.

        References
        ----------
        J. M. Cohen et al. (2022), Adaptive gradient methods at the edge of stability, arXiv:2207.14484 (the sharpness
        in the coordinates of Adam, and 38).

        Examples
        --------
        >>> import torch, gnlib
        >>> net, x = torch.nn.Linear(2, 1, bias=False), torch.tensor([[2.0, 0.0], [0.0, 1.0]])
        >>> round(gnlib.GaussNewton(net, x, optimizer="momentum").stable_rate().rate, 6)
        1.9
        """
        side = self._unchanged_side()
        if batch is not None and side is None:
            return batch_stable_rate(self._unchanged(), batch, self._optimizer)
        if batch is None and isinstance(self._problem, Problem):
            return stable_rate_of(self._unchanged(), self._optimizer)
        largest = self.largest_eigenvalue().value
        if batch is not None and side is not None:
            return batch_rate_bound(side, largest, batch, self._optimizer)
        return stable_rate_of_largest(largest, self._optimizer)

    def waiting(self, goal: float = 0.1, *, rate: float | None = None) -> Waiting:
        r"""Return within what the steps of gradient descent to a goal lie, and the eigenvalue that they wait for.

        The bounds hold for the linear model, whatever its spectrum and the targets. A real network may leave it and
        arrive sooner. With `dtype` some tens of products bound the
        spectrum, and the bounds on the steps hold with it; the eigenvalue is then an estimate.

        Parameters
        ----------
        goal
            share of the loss to reach, of what its quadratic model can remove where it is not the squared error
        rate
            learning rate; one over the largest eigenvalue, if it is not given

        Raises
        ------
        ValueError
            No targets, or no residual; a goal that is not between 0 and 1; a rate above the largest stable one; a loss
            without curvature where it has a slope.

        Examples
        --------
        >>> import torch, gnlib
        >>> x, y = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0], [1.0]])
        >>> line = torch.nn.Linear(2, 1, bias=False)
        >>> _ = torch.nn.init.zeros_(line.weight)
        >>> print(gnlib.GaussNewton(line, x, y).waiting(goal=0.01))
        between 6.8 and 17 steps; the training waits for the eigenvalue 0.5, 4 times smaller than the largest
        """
        if self._unchanged_side() is None:
            return waiting_of(self._unchanged(), goal, rate)
        return waiting_by_products(self._view(), goal, rate)[0]

    def effective_condition_number(self, share: float = 0.1) -> float:
        """Return the largest eigenvalue over the one that training waits for on its way to a share of the loss.

        The condition number is this for the worst targets; see :meth:`waiting`.
        """
        return self.waiting(share).effective_condition_number

    def forecast(
        self, *, rate: float | None = None, steps: int = 1000, after: int = 0, budget: float | None = None
    ) -> Forecast:
        r"""Return the loss curve of full-batch training, as the network linearised where it stands would have it.

        The outputs of a linear model follow :math:`f_{t+1} = f_t - \eta K g(f_t)`, with its kernel
        :math:`K = \frac1n J J^\top` and the gradient g of the loss by the outputs: for the squared error each
        eigenvector of K by itself, for others with the loss as it is. Of an optimiser that multiplies each parameter
        by a factor of its own, :math:`P^{-1}`, the kernel is :math:`\frac1n J P^{-1} J^\top`, with P as it is now.
        Weight decay, of SGD and of AdamW, and groups of parameters with settings of their own are followed too.

        How far it is to be trusted is tried: the optimiser takes 30 real steps on a copy (fewer where they take longer
        than all the rest), and the forecast is trusted until the first of them at which the losses differ by more than
        a factor of 1.5. Beyond them the linear model says where the parameters will be,
        :math:`\theta_t = \theta_0 - \frac1n P^{-1} J^\top c_t`, and it is trusted, for gradient descent, while the
        residuals and the gradients of the network there differ from its own by less than a quarter.

        With `dtype` it is by products with vectors, for networks of any size, and the forecast is trusted as far as
        real steps were taken. For the squared error some tens of products bound the losses of all steps from both
        sides: Gauss's and Lobatto's rules those of gradient descent, the recursion of the optimiser on what the
        products know those with momentum. It ends when the bounds differ by a millionth; after 10 s (or the budget)
        when they differ by 5 %, or by a thousandth of the first loss, or after 120 products. Other losses, weight
        decay and groups with other settings than rates, and an optimiser that has a momentum already are
        followed step by step, one product each: as far as 10 s (or the budget) go, at least 10 steps. The losses end
        there; real steps, which are cheaper, go on, 30 of them or as far as the budget goes once more. The P of an Adam
        that has taken no step is estimated where there are more than 2,000 outputs.

        Parameters
        ----------
        rate
            learning rate; that of an optimiser of torch, or half the largest stable one, if it is not given
        steps
            number of steps, those of `after` included
        after
            real steps to take first, on a copy: the kernel is often settled after a few
        budget
            seconds that real steps may take to compare, in place of 30 of them; with `dtype` those that the linear
            model may take too

        Raises
        ------
        TypeError
            An optimiser of another kind.
        ValueError
            No targets; a rate or budget that is not positive, steps that are no whole number above `after`, an
            optimiser of other parameters or with a rate of 0; `dtype=torch.bfloat16`.

        References
        ----------
        J. Lee et al. (2019), Wide neural networks of any depth evolve as linear models under gradient descent, NeurIPS
        32.

        Examples
        --------
        >>> import torch, gnlib
        >>> line = torch.nn.Linear(1, 1, bias=False).double()
        >>> with torch.no_grad():
        ...     _ = line.weight.fill_(0.0)
        >>> x = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
        >>> forecast = gnlib.GaussNewton(line, x, x).forecast(rate=0.2, steps=4)
        >>> forecast.losses
        tensor([1.2500, 0.3125, 0.0781, 0.0195, 0.0049], dtype=torch.float64)
        >>> forecast.trusted, forecast.steps_to(0.1), forecast.steps_to(1e-3), round(forecast.stable_rate, 6)
        (4, 2, None, 0.8)
        >>> gnlib.GaussNewton(line, x, x, dtype=torch.float64).forecast(rate=0.2, steps=4).upper
        tensor([1.2500, 0.3125, 0.0781, 0.0195, 0.0049], dtype=torch.float64)
        """
        if (side := self._unchanged_side()) is not None:
            return forecast_of_side(
                side, self._memory, self._optimizer, rate=rate, steps=steps, after=after, budget=budget
            )
        return forecast_of(self._unchanged(), self._optimizer, rate=rate, steps=steps, after=after, budget=budget)

    def batch_forecast(
        self, batch: int, rate: float | Sequence[float] | None = None, *, steps: int | None = None
    ) -> BatchForecast:
        r"""Return the mean loss of gradient descent on mini-batches, as the network linearised where it stands has it.

        Each step draws a batch anew. The mean is over all draws and exact for the linear model with the squared error;
        shuffled epochs are no part of it, and a real network leaves its linear model (:meth:`forecast` says when, for
        full batches). A step takes some :math:`4 (nk)^3` operations.

        Parameters
        ----------
        batch
            samples in a batch
        rate
            learning rate, or one for each step: a schedule. That of an SGD of torch, or half the largest stable one, if
            it is not given
        steps
            number of steps at one rate, 100 if it is not given

        Raises
        ------
        ValueError
            What :meth:`stable_rate` with `batch` refuses; a loss that is not the squared error, no targets, rates that
            are not positive, or another number of them than of steps.

        Examples
        --------
        >>> import torch, gnlib
        >>> line, x = torch.nn.Linear(1, 1, bias=False).double(), torch.tensor([[1.0], [2.0]]).double()
        >>> _ = torch.nn.init.zeros_(line.weight)
        >>> found = gnlib.GaussNewton(line, x, x).batch_forecast(1, 0.2, steps=3)
        >>> found.losses
        tensor([1.2500, 0.4250, 0.1445, 0.0491], dtype=torch.float64)
        >>> found.full_batch
        tensor([1.2500, 0.3125, 0.0781, 0.0195], dtype=torch.float64)
        >>> print(gnlib.GaussNewton(line, x).stable_rate(batch=1))
        gradient descent on batches of 1: stable below a learning rate of 0.5882
        """
        return batch_forecast_of(self._unchanged(), batch, rate, steps=steps, optimizer=self._optimizer)
