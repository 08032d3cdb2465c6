"""From a condition number to a decision: what a loss makes of it, where it comes from, and what to do."""

from gnlib.diagnosis.by_layer import by_layer as by_layer
from gnlib.diagnosis.culprits import culprits as culprits
from gnlib.diagnosis.forecast import forecast as forecast
from gnlib.diagnosis.loss_matrix import eigenvalues as eigenvalues
from gnlib.diagnosis.loss_matrix import loss_gram as loss_gram
from gnlib.diagnosis.rates import largest_stable_rate as largest_stable_rate
from gnlib.diagnosis.report import report as report
from gnlib.losses import loss_of as loss_of
