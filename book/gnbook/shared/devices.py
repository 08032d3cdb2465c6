"""The device of a chapter's parameter `device`, checked before anything is put there."""

import torch


def find_device(name: str) -> torch.device:
    """Return the device of that name; refuse one that is not there.

    `"cuda"` is a GPU of NVIDIA or AMD, `"cuda:1"` the second of them; `"auto"` is a GPU if there is one, else the CPU.
    """
    gpus = torch.cuda.device_count()
    there = ["cpu", *["cuda"][:gpus], *(f"cuda:{i}" for i in range(gpus))]
    if name == "auto":
        return torch.device("cuda" if gpus else "cpu")
    if name in there:
        return torch.device(name)
    raise ValueError(f"device is {name!r}; set it to {', '.join(there)} or auto, which takes what is there.")
