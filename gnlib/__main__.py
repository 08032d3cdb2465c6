"""The command `python -m gnlib report network.py:NAME --data batch.pt`."""

import argparse
import json
import pickle
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gnlib.condition import report


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the report of a network that a script makes, or say in one sentence why there is none."""
    parser = argparse.ArgumentParser(prog="python -m gnlib", description="Gauss-Newton matrices of networks.")
    commands = parser.add_subparsers(required=True, metavar="command")
    command = commands.add_parser("report", help="how well conditioned a network is, why, and what to do")
    command.add_argument("network", help="FILE.py:NAME of a module, or of a function without arguments that makes one")
    command.add_argument("--data", required=True, help="what torch.save wrote: x, a pair (x, y), or a dict of x and y")
    command.add_argument("--loss", default="mse", choices=("mse", "cross_entropy"))
    command.add_argument("--mode", choices=("eval", "train"), help="which function is meant, where they differ")
    command.add_argument("--memory", type=float, default=4.0, help="GiB that may be used")
    command.add_argument("--json", action="store_true", help="print numbers for programs")
    given = parser.parse_args(arguments)
    try:
        x, y = _data(given.data)
        page = report(_network(given.network), x, y, loss=given.loss, mode=given.mode, memory=given.memory)
    except (OSError, TypeError, ValueError) as error:
        command.exit(2, f"{error}\n")
    print(json.dumps(page.to_dict(), indent=1) if given.json else page)


def _network(place: str) -> nn.Module:
    file, _, name = place.rpartition(":")
    if not file or not Path(file).is_file():
        raise ValueError(f"network is {place!r}; FILE.py:NAME was expected, with a file that is there.")
    sys.path.insert(0, str(Path(file).parent.resolve()))  # as Python does for a script
    names = runpy.run_path(file)
    if name not in names:
        raise ValueError(f"{file} has no {name!r}; a module or a function that makes one was expected.")
    made: Any = names[name]
    return made() if callable(made) and not isinstance(made, nn.Module) else made


def _data(file: str) -> tuple[Any, Any]:
    try:
        data = torch.load(file, weights_only=True)
    except (RuntimeError, ValueError, EOFError, LookupError, pickle.UnpicklingError) as error:
        raise ValueError(f"{file} cannot be read as tensors: {str(error).splitlines()[0]}") from error
    if isinstance(data, dict) and "x" in data:
        return data["x"], data.get("y")
    if isinstance(data, tuple | list) and len(data) == 2:
        return data[0], data[1]
    return data, None


if __name__ == "__main__":
    main()
