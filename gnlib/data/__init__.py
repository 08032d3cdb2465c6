"""MNIST and CIFAR-10 training images, in one class-balanced order.

The first 1,000 images of that order ship with the library, so that everything here runs without a download; the full
training sets are fetched once with `python -m gnlib.data fetch`. Whatever is read is verified by its digest.

>>> x, labels = load("mnist", 20, stride=4)
>>> x.shape, labels[:5]
(torch.Size([20, 49]), tensor([0, 1, 2, 3, 4]))
"""

from gnlib.data.datasets import LUMA as LUMA
from gnlib.data.datasets import balanced_order as balanced_order
from gnlib.data.datasets import load as load
from gnlib.data.datasets import training_set as training_set
