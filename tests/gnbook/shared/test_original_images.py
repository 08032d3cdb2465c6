"""Images in their original order, from a small training set in place of the whole one."""

import numpy as np
import pytest
import torch
from gnbook.shared import original_images
from gnbook.shared.original_images import first_images, second_moment_of_all

IMAGES = np.random.default_rng(0).integers(0, 256, (23, 3, 4, 4), dtype=np.uint8)
LABELS = np.arange(23, dtype=np.uint8) % 5


@pytest.mark.parametrize("centred", [False, True])
def test_the_first_images_are_in_the_original_order_and_the_second_moment_is_that_of_all(centred, monkeypatch):
    monkeypatch.setattr(original_images, "training_set", lambda name: (IMAGES, LABELS))
    monkeypatch.setattr(original_images, "AT_ONCE", 5)
    x, labels = first_images("cifar10", 7, stride=2, centred=centred)
    expected = IMAGES / 255.0 - centred * (IMAGES / 255.0).mean(0)
    assert torch.allclose(x, torch.from_numpy(expected[:7, :, ::2, ::2].reshape(7, -1)), atol=1e-13)
    assert labels.tolist() == LABELS[:7].tolist()
    x = torch.from_numpy(expected.reshape(23, -1))
    assert torch.allclose(second_moment_of_all("cifar10", centred=centred), x.T @ x / len(x), atol=1e-13)
