"""Command line: `python -m gnbook.sweep NOTEBOOK --grid GRID.yml --out DIR`, `python -m gnbook.sweep report DIR`."""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from gnbook.sweep.driver import HOUR, Options, number_of_workers, plan_for, run
from gnbook.sweep.folder import Folder
from gnbook.sweep.plan import preview

BAD_INPUT, INTERRUPTED = 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 1 if a run failed, 2 if nothing could be run."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _report(*arguments[1:]) if arguments[:1] == ["report"] and len(arguments) == 2 else _sweep(arguments)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return INTERRUPTED
    except (ImportError, OSError, SyntaxError, ValueError) as error:
        print(error, file=sys.stderr)
        return BAD_INPUT


def _sweep(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m gnbook.sweep",
        description="Run a notebook for every case of a grid. `report DIR` draws the figures that the grid declares.",
    )
    parser.add_argument("notebook", type=Path, help=".ipynb file with a cell tagged `parameters`")
    parser.add_argument("--grid", type=Path, required=True, help="YAML file with the cases")
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs and their table")
    parser.add_argument("--workers", type=int, help="processes on this machine (default: one for each core or GPU)")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="a Dask scheduler, whose workers do the work instead")
    parser.add_argument("--device", choices=("cpu", "cuda", "auto"), help="value of the notebook's parameter `device`")
    parser.add_argument("--timeout", type=float, default=HOUR, help="seconds for each run (default: %(default)s)")
    parser.add_argument("--memory", help="for each run, such as 4GiB (default: all there is, shared out)")
    parser.add_argument("--threads", type=int, default=1, help="threads for each run (default: %(default)s)")
    parser.add_argument("--dry-run", action="store_true", help="show the cases and about how long they take")
    options = vars(parser.parse_args(arguments))
    notebook, grid, out = (options.pop(name) for name in ("notebook", "grid", "out"))
    if options.pop("dry_run"):
        plan = plan_for(notebook, grid, Options(**options))
        print(preview(plan, Folder(out.absolute()), number_of_workers(Options(**options), plan)))
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # queues send it before they kill
    summary = run(notebook, grid, out, **options)
    print(summary)
    return INTERRUPTED if summary.interrupted else int(bool(summary.failed))


def _report(folder: str) -> int:
    from gnbook.sweep.report import report

    print(*report(folder), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
