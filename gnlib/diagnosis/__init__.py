"""From a condition number to a decision: what a loss makes of it, where it comes from, and what to do."""

from gnlib.diagnosis.losses import Loss as Loss
from gnlib.diagnosis.losses import loss_of as loss_of
