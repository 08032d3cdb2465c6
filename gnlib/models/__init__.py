"""Networks: weights at initialisation and the functions that they compute."""

from gnlib.models.convolution import convolution_network as convolution_network
from gnlib.models.convolution import convolution_weights as convolution_weights
from gnlib.models.convolution import toeplitz as toeplitz
from gnlib.models.fully_connected import FullyConnected as FullyConnected
from gnlib.models.fully_connected import xavier_weights as xavier_weights
from gnlib.models.linear import linear_network as linear_network
from gnlib.models.linear import linear_weights as linear_weights
from gnlib.models.residual_network import ResidualNetwork as ResidualNetwork
from gnlib.models.vgg import VGG as VGG
from gnlib.models.vision_transformer import VisionTransformer as VisionTransformer
