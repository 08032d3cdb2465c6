"""Networks: weights at initialisation and the functions that they compute."""

from gnlib.models.linear import linear_network as linear_network
from gnlib.models.linear import linear_weights as linear_weights
