"""The parameter `device` of the chapters: the device of each name."""

import pytest
import torch
from gnbook.shared.devices import find_device


@pytest.mark.parametrize(
    ("gpus", "names"), [(0, "cpu"), (1, "cpu, cuda, cuda:0"), (2, "cpu, cuda, cuda:0, cuda:1")], ids=range(3)
)
def test_devices_that_are_there_are_found_and_others_refused(gpus, names, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert find_device("auto") == torch.device("cuda" if gpus else "cpu")
    for name in names.split(", "):
        assert find_device(name) == torch.device(name)
    for name in (f"cuda:{gpus}", "mps"):
        with pytest.raises(ValueError, match=f"^device is '{name}'; set it to {names} or auto, which takes"):
            find_device(name)
