"""Gauss-Newton matrices of neural networks, and how well conditioned they are."""

from gnlib.compare import compare as compare
from gnlib.compare import noise_of_draws as noise_of_draws
from gnlib.condition import condition_number as condition_number
from gnlib.condition import report as report
from gnlib.data import load as load
from gnlib.eigen import ConditionNumber as ConditionNumber
from gnlib.eigen import NotConvergedError as NotConvergedError
from gnlib.eigen import NotResolvedError as NotResolvedError
from gnlib.eigen import largest_eigenvalue as largest_eigenvalue
from gnlib.gauss_newton import GaussNewton as GaussNewton
from gnlib.keep import load_result as load_result
from gnlib.keep import save as save
from gnlib.linear import SecondMoment as SecondMoment
from gnlib.linear import bounds as bounds
from gnlib.linear import linear_gauss_newton as linear_gauss_newton
from gnlib.linear import linear_network as linear_network
from gnlib.linear import linear_weights as linear_weights
from gnlib.linear import reduced_gauss_newton as reduced_gauss_newton
from gnlib.linear import second_moment as second_moment
from gnlib.linear import whiten as whiten
from gnlib.refused import Refused as Refused
from gnlib.renamed import by_layer as by_layer
from gnlib.renamed import cost as cost
from gnlib.renamed import culprits as culprits
from gnlib.renamed import eigenvalues as eigenvalues
from gnlib.renamed import forecast as forecast
from gnlib.renamed import gauss_newton_gram as gauss_newton_gram
from gnlib.renamed import gauss_newton_operator as gauss_newton_operator
from gnlib.renamed import largest_stable_rate as largest_stable_rate
from gnlib.renamed import loss_gram as loss_gram
from gnlib.watch import Watch as Watch

__version__ = "0.1.0"
