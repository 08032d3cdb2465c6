"""What can be asked of a Gauss-Newton matrix that is not formed: by products with vectors, for networks of any size."""

from abc import ABC, abstractmethod
from dataclasses import replace

from gnlib.diagnosis.course import LossBounds, View, loss_bounds_of, room_for
from gnlib.eigen.density import Estimate, SpectralDensity, spectral_density, trace
from gnlib.eigen.top import Eigenpairs, largest_eigenpairs
from gnlib.operators import SymmetricOperator
from gnlib.refused import Refused


class ByProducts(ABC):
    """The questions to a Gauss-Newton matrix that some tens of products with vectors answer.

    What is true of all of them: no matrix is formed, and the answer is in double precision, or in the precision that
    `dtype` names.
    """

    _memory: float  # GiB

    @abstractmethod
    def operator(self) -> SymmetricOperator:
        """Return the matrix by its products with vectors."""

    @abstractmethod
    def _view(self) -> View:
        """Return the matrix with the residual."""

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

    @abstractmethod
    def _rounding(self) -> float:
        """Return the relative error of a product."""

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

    @abstractmethod
    def _loss_name(self) -> str:
        """Return the name of the loss."""
