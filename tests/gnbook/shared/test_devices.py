"""The parameter `device` of the chapters: what each name gives, and what is said where it gives nothing."""

import pytest
import torch
from gnbook.shared.devices import find_device


@pytest.fixture(params=[0, 1, 2])
def gpus(request, monkeypatch):
    """So many GPUs, as far as torch tells."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: request.param)
    return request.param


def test_the_cpu_is_there_on_every_machine(gpus):
    assert find_device("cpu") == torch.device("cpu")


def test_auto_takes_a_gpu_if_there_is_one(gpus):
    assert find_device("auto") == torch.device("cuda" if gpus else "cpu")


def test_gpus_that_are_there_are_found(gpus):
    for name in ["cuda"] * (gpus > 0) + [f"cuda:{i}" for i in range(gpus)]:
        assert find_device(name) == torch.device(name)


@pytest.mark.bad_input
def test_a_gpu_that_is_not_there_is_refused(gpus):
    seen = {0: "no such GPU", 1: "1 such GPU", 2: "2 such GPUs"}[gpus]
    choice = {0: "cpu or auto", 1: "cpu, cuda, cuda:0 or auto", 2: "cpu, cuda, cuda:0, cuda:1 or auto"}[gpus]
    for name in ["cuda"] * (gpus == 0) + [f"cuda:{gpus}"]:
        said = f"^device is '{name}', but torch sees {seen} on this machine; set it to {choice}, which takes"
        with pytest.raises(ValueError, match=said):
            find_device(name)


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["mps", "mps:0"])
def test_of_apples_gpus_it_is_said_what_they_lack(gpus, name):
    with pytest.raises(ValueError, match=f"^device is '{name}', but the GPUs of Apple have no double precision"):
        find_device(name)


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["gpu", "CUDA", "cuda:", "cuda:x", "cpu:0", "meta", "", None, 0, torch.device("meta")])
def test_other_names_are_refused(gpus, name):
    with pytest.raises(ValueError, match=r"^device is .*, but (no device of that name is known|torch sees)"):
        find_device(name)
