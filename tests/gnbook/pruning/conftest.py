"""Networks as small as these are convolved without oneDNN.

On processors with AVX2 and no more, that of torch 2.13 writes beyond its memory in backward passes of convolutions of
fewer than eight channels in single precision, and the process dies, there or later. The book has eight and more.
"""

import warnings

import pytest
import torch


def use_onednn(flag):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "TF32 acceleration on top of oneDNN")  # on Intel's GPUs, at the first call
        torch.backends.mkldnn.set_flags(flag)


@pytest.fixture(autouse=True)
def without_onednn():
    use_onednn(False)
    yield
    use_onednn(True)
