"""The parameter `device` of the chapters: the device of each name."""

import pytest
import torch
from gnbook.shared.devices import find_device


@pytest.fixture(params=[0, 1, 2])
def gpus(request, monkeypatch):
    """So many GPUs, as far as torch tells."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: request.param)
    return request.param


def test_devices_that_are_there_are_found(gpus):
    assert find_device("auto") == torch.device("cuda" if gpus else "cpu")
    for name in ["cpu"] + ["cuda"] * (gpus > 0) + [f"cuda:{i}" for i in range(gpus)]:
        assert find_device(name) == torch.device(name)


@pytest.mark.bad_input
def test_a_gpu_that_is_not_there_is_refused(gpus):
    seen = {0: "no such GPU", 1: "1 such GPU", 2: "2 such GPUs"}[gpus]
    choice = {0: "cpu or auto", 1: "cpu, cuda, cuda:0 or auto", 2: "cpu, cuda, cuda:0, cuda:1 or auto"}[gpus]
    for name in ["cuda"] * (gpus == 0) + [f"cuda:{gpus}"]:
        said = f"^device is '{name}', but torch sees {seen} on this machine; set it to {choice}, which takes"
        with pytest.raises(ValueError, match=said):
            find_device(name)
