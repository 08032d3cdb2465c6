"""The Gauss-Newton matrix of a module on its data, and all that can be asked of it.

>>> import torch
>>> torch.manual_seed(0)
<torch._C.Generator object at ...>
>>> network = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
>>> g = GaussNewton(network, torch.randn(5, 4))
>>> g.condition_number().rank, g.gram().shape
(10, torch.Size([10, 10]))
"""

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from gnlib.asked import Asked
from gnlib.checks import EPS, AxesError
from gnlib.diagnosis.by_layer import Shares, shares_of
from gnlib.diagnosis.course import View, view_of_problem, view_of_side
from gnlib.diagnosis.culprits import Culprits, culprits_of
from gnlib.eigen.davidson import ExtremePair
from gnlib.eigen.largest import largest_eigenvalue
from gnlib.eigen.result import ConditionNumber, Limits
from gnlib.jacobian.gram import blocks_of
from gnlib.jacobian.inputs import Inputs, read_batches
from gnlib.jacobian.network import Mode
from gnlib.jacobian.plan import Cost
from gnlib.losses import CrossEntropy, SquaredError
from gnlib.of_changes import OfChanges
from gnlib.operators import SymmetricOperator
from gnlib.problem import Problem
from gnlib.products.choice import prefers_products
from gnlib.products.side import Side, side_of
from gnlib.refused import Refused

NO_MATRIX = "This needs a matrix, and dtype= asks for products with vectors alone; leave dtype= out."


class GaussNewton(OfChanges):
    r"""The Gauss-Newton matrix of a module on its data, for a loss.

    It is :math:`G = \frac1n \sum_i J_i^\top H_i J_i`, with the Jacobian :math:`J_i` of the outputs on sample i by the
    parameters that require a gradient, and the second derivative :math:`H_i` of the loss by these outputs, the
    identity for the squared error. Its non-zero eigenvalues are computed from the smaller matrix
    :math:`\frac1n R^\top J J^\top R` with :math:`H_i = R_i R_i^\top`, in double precision whatever the precision of
    the module.

    Everything is computed when it is first asked for, and once. It speaks of the parameters as they were when it was
    made: a method refuses a module of which a parameter has changed since. The module is left as it is: its precision,
    mode, gradients, running statistics and the state of the random numbers.

    Parameters
    ----------
    module
        any module; masks, parametrisations, frozen and tied parameters mean what they mean in training
    x
        the data: a tensor with samples along its first axis, a tuple of the tensors that the module is called with, a
        dict of those that it is called with by name, a list of batches of any of these kinds, or a `DataLoader`, whose
        batches are `(*arguments, targets)`, or the arguments alone if `y` is given. Integers, such as the numbers of
        tokens, are passed on as they are. Batches stand for all their samples; where the samples of a batch depend on
        each other, as with batch normalisation in training, each depends on those of its own batch
    y
        the targets, as for :func:`gnlib.losses.loss_of`; a list holds those of each batch. Curvature needs none for
        the squared error and the cross-entropy; forecasts do
    loss
        `"mse"`, `"cross_entropy"`, or a function of outputs and targets, as for :func:`gnlib.losses.loss_of`. `"mse"`
        is half the mean over samples of the squared distance, of which `nn.MSELoss()` is `2 / k` times
    output
        function that makes the `(n, k)` outputs of the module's own result, where these are not the same
    mode
        which function is meant: `"eval"` (running statistics, no dropout) or `"train"` (statistics of the batch);
        needed only if the module is in training mode and is another function there. Where the outputs of a sample
        depend on the other samples, it is the function of the whole batch that is differentiated, which takes n times
        as long
    memory
        GiB that may be used beyond the module and the data, for the result of `8 (nk)^2` bytes among others. The less
        is left of it, the more often the network is differentiated
    optimizer
        one of torch.optim (SGD, Adam, AdamW, RMSprop), or `"sgd"`, `"momentum"`, `"adam"`, for stable rates, forecasts
        and reports
    dtype
        `torch.float32`, `torch.float64` or `torch.bfloat16`: then everything is by products with vectors in this
        precision, for networks of any size, and methods that need a matrix refuse. Outputs may have any shape behind
        the samples, and `"cross_entropy"` is the mean over the tokens that count (or an `nn.CrossEntropyLoss` with its
        settings). None for double precision, and a choice: products where outputs have several axes, as those of
        tokens have, where the matrix does not fit into the memory, or takes over a minute and several times as long

    Raises
    ------
    TypeError
        Something that is not a module, or not a tensor of real numbers.
    ValueError
        Parameters, data, outputs or derivatives that are not finite, outputs not of shape `(n, k)` or without a
        gradient, a random function, one that changes its parameters or depends on earlier calls, one that
        computes in a lower precision out of sight, samples that depend on each other unless `mode="train"` or batch
        normalisation say so, an unknown mode, or too little memory; losses and targets that
        :func:`gnlib.losses.loss_of` refuses.

    Notes
    -----
    A trial with the given parameters, and with others near them, tells whether the function is random and whether
    samples depend on each other, by outputs and by gradients; for it all samples go through the network four times,
    forward and backward. The outputs of all passes that a matrix is made in are compared with those of the trial.

    Gradients by the weights of linear maps, convolutions, embeddings, normalisations, recurrent layers and the
    projections of attention are products of features and gradients, from which their part of the matrix is made in the
    way that takes fewer operations (:meth:`cost`). A parameter that is used in any other way as well is differentiated
    by itself.

    A module that `torch.vmap` cannot take (operations in place, control flow that depends on the data, packed
    sequences) is differentiated sample by sample, which is right but slow. Casts in a forward pass are casts to double
    precision. Hooks of modules on gradients are left out, since they are no part of the function.

    References
    ----------
    N. N. Schraudolph (2002), Fast curvature matrix-vector products for second-order gradient descent, Neural
    Computation 14 (the generalised Gauss-Newton matrix).
    R. Novak, J. Sohl-Dickstein, S. S. Schoenholz (2022), Fast finite width neural tangent kernel, ICML 39 (products of
    two Gram matrices, and when they pay).

    Examples
    --------
    >>> import torch
    >>> g = GaussNewton(torch.nn.Linear(2, 1, bias=False), torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
    >>> g.eigenvalues()
    tensor([2.0000, 0.5000], dtype=torch.float64)
    >>> float(g.condition_number()), round(g.stable_rate().rate, 6)
    (4.0, 1.0)
    """

    def __init__(
        self,
        module: nn.Module,
        x: Inputs,
        y: Any = None,
        loss: str | Callable[[Tensor, Any], Tensor] = "mse",
        *,
        output: Callable[..., Tensor] | None = None,
        mode: Mode | None = None,
        memory: float = 4.0,
        optimizer: str | Optimizer | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self._optimizer, self._memory = optimizer, memory
        if isinstance(x, DataLoader):  # which is read once
            x, y = read_batches(x, y)
        self._asked = Asked(module, x, y, loss, output, mode, memory, dtype)
        self._problem: Problem | str = NO_MATRIX
        if dtype is None:
            try:
                self._problem = Problem(module, x, y, loss, output=output, mode=mode, memory=memory)
            except AxesError as error:  # of tokens or pixels, which products take
                self._problem = str(error)

        precision = torch.float64 if dtype is None else dtype
        self._make = partial(side_of, module, x, y, loss, output=output, mode=mode, memory=memory, dtype=precision)
        if not isinstance(self._problem, Problem):
            _ = self._made  # so that what is refused is refused here

    @cached_property
    def _made(self) -> Side:
        """The matrix by its products with vectors."""
        return self._make()

    @cached_property
    def _side(self) -> Side | None:
        """The same where it is asked for, is all that there is, or takes far fewer operations than the matrix."""
        if isinstance(self._problem, Problem):
            known = isinstance(self._problem.loss, SquaredError | CrossEntropy)  # to products
            return self._made if known and prefers_products(self._problem) else None
        return self._made

    def __repr__(self) -> str:
        """Say of which matrix this is, without computing anything."""
        if not isinstance(self._problem, Problem):
            return f"GaussNewton({self._made.words}, by products)"
        problem = self._unchanged()
        (n, k), p = problem.outputs.shape, problem.parameters
        return f"GaussNewton({type(problem.module).__name__}, n = {n}, k = {k}, p = {p}, loss = {problem.loss.name})"

    def _unchanged(self) -> Problem:
        if not isinstance(self._problem, Problem):
            raise Refused("needs-matrix", self._problem)
        self._problem.check_unchanged()
        return self._problem

    def _unchanged_side(self) -> Side | None:
        if isinstance(self._problem, Problem):
            self._problem.check_unchanged()
        if self._side is not None:
            self._side.check_unchanged()
        return self._side

    def _view(self) -> View:
        side = self._unchanged_side()
        return view_of_problem(self._unchanged()) if side is None else view_of_side(side, self._memory)

    def _rounding(self) -> float:
        return EPS if self._side is None else self._side.error

    def _loss_name(self) -> str:
        return self._unchanged().loss.name if self._side is None else self._side.curvature.name

    def condition_number(
        self, *, method: Literal["gram", "jacobian"] | None = None, tolerance: float = 1e-8, max_steps: int = 200
    ) -> ConditionNumber:
        """Return the pseudo-condition number: the largest eigenvalue over the smallest one that is not zero.

        Both ends come from the Gram matrix; where that is singular or does not resolve the smallest eigenvalue, the
        singular values of `R^T J` take its place.

        Parameters
        ----------
        method
            `"gram"`, or `"jacobian"` for singular values even where the Gram matrix resolves all
        tolerance, max_steps
            relative error at which an iteration may stop, and steps after which it gives up

        Raises
        ------
        ValueError
            A method that is not known; too little memory; a matrix that is zero.
        """
        limits, problem = Limits(tolerance, max_steps), self._unchanged()
        return problem.condition if method is None and limits == Limits() else problem.ends_by(method, limits)

    def eigenvalues(self) -> Float[Tensor, " nr"]:
        """Return all eigenvalues of the matrix, descending.

        Those below `n r` times the rounding of double precision, relative to the largest, are rounding, of either sign.
        """
        return self._unchanged().eigenvalues.flip(0)

    def gram(self) -> Float[Tensor, "nk nk"]:
        r"""Return :math:`\frac1n J J^\top`, which has no part of the loss; row `i k + a` is output a of sample i.

        Examples
        --------
        >>> import torch
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
        >>> GaussNewton(torch.nn.Linear(2, 1, bias=False), x).gram()
        tensor([[0.5000, 0.5000],
                [0.5000, 1.0000]], dtype=torch.float64)
        """
        return self._unchanged().gram.clone()

    def tangent_kernel(self) -> Float[Tensor, "nk nk"]:
        r"""Return :math:`J J^\top`, n times the Gram matrix (Liu, Zhu and Belkin 2020, NeurIPS 33, Eq. 1)."""
        return self.gram().mul_(len(self._unchanged().outputs))

    def loss_gram(self) -> Float[Tensor, "nr nr"]:
        r"""Return :math:`\frac1n R^\top J J^\top R`, with row `i r + a` for column a of :math:`R_i`.

        Cross-entropy has `r = k - 1` columns, the squared error k.
        """
        return self._unchanged().loss_gram.clone()

    def jacobian(self) -> Iterator[Float[Tensor, "nk g"]]:
        """Return the Jacobian block by block: all rows, but some of the columns, as many as fit into the memory.

        The columns are those of the flattened parameters, from the last one that the module registered to the first. A
        block is forgotten when it is handed out: to stay within the memory, let go of it before asking for the next.
        """
        problem = self._unchanged()
        return blocks_of(problem.networks, problem.memory)

    def operator(self) -> SymmetricOperator:
        r"""Return :math:`\frac1n R^\top J J^\top R` by its products with vectors, for more outputs than fit.

        With `dtype` it is :math:`\frac1n J^\top H J` instead where there are fewer parameters than outputs. The
        smallest eigenvalue cannot be had that way: without a preconditioner an iteration takes as many steps as there
        are eigenvalues.
        """
        side = self._unchanged_side()
        return self._unchanged().operator() if side is None else side.operator

    def largest_eigenvalue(self, *, tolerance: float | None = None, max_steps: int = 500) -> ExtremePair:
        """Return the largest eigenvalue by products with vectors: no matrix is formed.

        Parameters
        ----------
        tolerance, max_steps
            relative error at which the iteration may stop, and steps after which it gives up. It is 1e-8, which the
            residual proves; with `dtype` 1e-3, which the square of the residual over the gap estimates

        Raises
        ------
        NotConvergedError
            After `max_steps`.
        """
        if isinstance(self._problem, Problem):
            return largest_eigenvalue(
                self._unchanged().operator(), tolerance=1e-8 if tolerance is None else tolerance, max_steps=max_steps
            )
        found = self.eigenpairs(1, tolerance=1e-3 if tolerance is None else tolerance, products=max_steps)
        error = float(found.errors[0]) + self._rounding()
        return ExtremePair(float(found.values[0]), found.vectors, error, found.products)

    def by_layer(self) -> Shares:
        r"""Return the share of each layer in the trace and in both ends of the spectrum.

        The matrix is a sum over the parameters, :math:`K = \sum_\ell K_\ell`, and so is an eigenvalue with the
        eigenvector v, :math:`\lambda = \sum_\ell v^\top K_\ell v`: the shares are exact and add up. A layer with much
        of the largest eigenvalue and little of the smallest wants a smaller learning rate, or smaller inputs; one with
        much of the smallest a larger one.

        Examples
        --------
        >>> import torch
        >>> net = torch.nn.Sequential(torch.nn.Linear(2, 1, bias=False), torch.nn.Linear(1, 1, bias=False))
        >>> _ = torch.nn.init.constant_(net[0].weight, 1.0), torch.nn.init.constant_(net[1].weight, 2.0)
        >>> print(GaussNewton(net, torch.tensor([[1.0, 0.0], [0.0, 1.0]])).by_layer())
        layer  parameters  trace  largest  smallest  difference
        0      2           80.0%  66.7%    100.0%    -33.3%
        1      1           20.0%  33.3%    0.0%      +33.3%
        """
        return shares_of(self._unchanged())

    def culprits(self, most: int = 5) -> Culprits:
        r"""Return the samples, outputs and units that carry the smallest eigenvalue.

        Samples i and j have the same rows in the Jacobian J if and only if the trace of
        :math:`K_{ii} + K_{jj} - 2 K_{ij}` is zero, which is the squared distance of these rows: equal samples are
        found whatever the network, and so are samples that it cannot tell apart.

        Parameters
        ----------
        most
            how many samples, outputs and pairs to name

        Examples
        --------
        >>> import torch
        >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [2.0, 1.0]])
        >>> print(GaussNewton(torch.nn.Linear(2, 1), x).culprits(most=2).equal_samples[0])
        0 and 2 are equal
        """
        return culprits_of(self._unchanged(), most)

    def cost(self) -> Cost:
        """Return which way each layer goes to the Gram matrix, and the operations, seconds and memory of that.

        A layer goes by `"pairs"`: products of features and products of gradients, for all pairs of positions; by
        `"columns"`: its part of the Jacobian and a product of matrices; or by `"gradients"`, as columns that automatic
        differentiation gives, where nothing is known of its structure.

        Examples
        --------
        >>> import torch
        >>> layers = torch.nn.Conv1d(1, 4, 5), torch.nn.Flatten(), torch.nn.Linear(184, 3)
        >>> cost = GaussNewton(torch.nn.Sequential(*layers), torch.ones(6, 1, 50)).cost()
        >>> [(step.parameters, step.way) for step in cost.steps]
        [(('2.weight', '2.bias'), 'pairs'), (('0.bias',), 'columns'), (('0.weight',), 'columns')]
        >>> cost.forward, cost.backward
        (6, 18)
        """
        return self._unchanged().cost(probe=True)
