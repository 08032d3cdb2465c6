"""The largest eigenpairs, and how all eigenvalues are spread, by the Lanczos process, where they are known."""

import numpy as np
import pytest
import torch

from gnlib import NotConvergedError
from gnlib.eigen.density import spectral_density, trace
from gnlib.eigen.quadrature import Lanczos
from gnlib.eigen.top import largest_eigenpairs
from gnlib.operators import SymmetricOperator
from tests.oracles import normal, with_spectrum


class Counted(SymmetricOperator):
    """A matrix, or a diagonal one by its diagonal, as an operator that counts its products."""

    def __init__(self, matrix):
        super().__init__(len(matrix), matrix.dtype, matrix.device)
        self.matrix, self.products = matrix, 0

    def matmul(self, v):
        self.products += v[0].numel()
        return self.matrix @ v if self.matrix.ndim == 2 else self.matrix * v


def of(values, seed=0):
    return Counted(with_spectrum(values, seed=seed))


def test_no_eigenvalue_is_found_twice():
    """A large one apart would come back without the second orthogonalisation."""
    values = torch.cat([torch.linspace(0, 1, 300).double(), torch.tensor([1e8]).double()])
    process = Lanczos(values.mul, torch.ones(301).double())
    for _ in range(80):
        process.step()
    assert (process.gauss().nodes > 2).sum() == 1


# The largest


SPREAD = np.geomspace(1, 1e-8, 60)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("tolerance", [1e-3, 1e-8])
def test_the_largest_are_found_to_the_tolerance_by_few_products(k, tolerance):
    operator = of(SPREAD)
    found = largest_eigenpairs(operator, k, tolerance=tolerance)
    exact = torch.from_numpy(SPREAD[:k].copy())
    assert ((found.values / exact - 1).abs() <= tolerance).all() and (found.errors <= tolerance).all()
    assert found.products == operator.products < (40 if tolerance < 1e-4 else 16)
    left = torch.linalg.vector_norm(operator.matrix @ found.vectors - found.vectors * found.values, dim=0)
    torch.testing.assert_close(left / found.values, found.residuals, rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(found.vectors.mT @ found.vectors, torch.eye(k).double(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("gap", [0.5, 0.1, 1e-3])
def test_the_error_holds_where_the_gap_is_small(gap):
    values = np.concatenate([[1.0, 1 - gap], np.geomspace(0.5, 1e-3, 40)])
    for seed in range(10):
        found = largest_eigenpairs(of(values, seed), 1, tolerance=1e-4, seed=seed)
        near = 2 * float(found.residuals[0]) if gap < 0.01 else 3 * float(found.errors[0])  # two are taken for one
        assert 0 <= 1 - float(found.values[0]) + 1e-12 <= near + 2e-12


def test_a_cluster_at_the_top_is_not_taken_for_its_second():
    """As of a language model, where a process from a random vector stood at the second eigenvalue for some steps."""
    values = np.concatenate([[1.0, 0.975, 0.97, 0.96, 0.95, 0.93, 0.9], np.geomspace(0.85, 1e-6, 20_000)])
    found = [largest_eigenpairs(Counted(torch.from_numpy(values)), 1, seed=seed) for seed in range(30)]
    assert max(one.products for one in found) < 60
    off = [1 - float(one.values[0]) for one in found]
    assert np.quantile(off, 0.95) < 2e-3 and max(off) < 0.026


# All of them


SPECTRA = {
    "zeros": np.concatenate([np.full(100, 0.0), np.geomspace(1e-3, 1e-1, 60), np.linspace(1, 2, 40)]),
    "power law": 1 / np.arange(1, 201) ** 2.0,
    "two atoms": np.repeat([1.0, 3.0], [150, 50]),
}


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("steps", [5, 40])
def test_the_number_below_a_value_lies_between_its_bounds(name, steps):
    values = SPECTRA[name]
    density = spectral_density(of(values), vectors=10, steps=steps)
    widths = []
    for value in (1e-9, *np.geomspace(1e-5, 4, 30)):
        low, high = density.below(value)
        assert low - 1e-6 <= (values <= value * (1 + 1e-9)).sum() <= high + 1e-6
        widths.append(high - low)
    assert density.size == 200 and np.mean(widths) < (130 if steps == 5 else 70)
    assert density.trace.value == pytest.approx(values.sum(), abs=4 * density.trace.error + 1e-9)
    assert density.effective_rank == pytest.approx(values.sum() ** 2 / (values**2).sum(), rel=0.2)
    assert density.largest == pytest.approx(values.max(), rel=0.05)


def test_zeros_are_told_from_small_eigenvalues_where_the_products_can():
    density = spectral_density(of(SPECTRA["zeros"]), vectors=10, steps=40)
    low, high = density.zeros
    assert low < 100 < high < 120 and density.products == 400
    none = spectral_density(of(np.linspace(1, 2, 50)), steps=10)
    assert none.zeros.high < 1e-6 and none.below(4.0).low > 49.999
    ended = spectral_density(of(SPECTRA["two atoms"]), steps=40)  # after two products
    assert ended.products == 10 and ended.below(2.0).high < 200 and ended.zeros == (0, 0)
    assert str(density).startswith("200 eigenvalues, ") and "effective rank" in str(density)


@pytest.mark.parametrize("vectors", [2, 3, 5])
def test_few_random_vectors_give_an_interval_that_holds_all_the_same(vectors):
    """Three standard errors of two vectors would miss one in ten times."""
    values = np.geomspace(1e-3, 10, 25)
    for seed in range(40):
        low, high = spectral_density(of(values, seed), vectors=vectors, steps=8, seed=seed).below(0.3)
        assert low <= (values <= 0.3).sum() <= high


@pytest.mark.parametrize("seed", range(4))
def test_the_trace_within_its_error_and_nearer_than_plain_random_vectors(seed):
    values = 100 / np.arange(1, 151) ** 2
    operator = of(values, seed)
    found = trace(operator, products=45, seed=seed)
    assert operator.products == 45
    assert abs(found.value - values.sum()) < 4 * found.error
    assert found.error < spectral_density(operator, vectors=45, steps=1, seed=seed).trace.error / 3
    assert trace(of([1.0, 2.0, 4.0]))[:2] == (pytest.approx(7), 0)


ZERO, NAN = torch.zeros(4, 4).double(), torch.full((30, 30), torch.nan).double()
DIAGONAL = torch.arange(30.0).double().diag()
SKEW = DIAGONAL + normal(30, 30, seed=0).triu()


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "function, matrix, options, message",
    [
        (largest_eigenpairs, DIAGONAL, dict(tolerance=1e-8, products=3), "3 products the relative .*, above 1e-08"),
        (largest_eigenpairs, DIAGONAL, dict(k=0), "k is 0; a whole number of at least 1"),
        (spectral_density, DIAGONAL, dict(vectors=1), "vectors is 1 and steps 30; at least 2 vectors"),
        (trace, DIAGONAL, dict(products=5), "products is 5; at least 6"),
        *(
            (function, matrix, {}, message)
            for function in (largest_eigenpairs, spectral_density)
            for matrix, message in (
                (ZERO, "The matrix is zero"),
                (NAN, "A product has NaN or infinite"),
                (SKEW, "not those of a symmetric matrix"),
                (-DIAGONAL, "negative eigenvalue"),
            )
        ),
    ],
)
def test_what_has_no_such_spectrum_is_refused(function, matrix, options, message):
    with pytest.raises((ValueError, NotConvergedError), match=message):
        function(Counted(matrix), **options)
