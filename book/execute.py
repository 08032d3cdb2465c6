"""Execute pages of the book side by side: one kernel a processor, one thread each, the longest first.

`python book/execute.py` executes the chapters that changed since their outputs were kept, `--all` executes every
chapter, `NAME ...` the chapters named. It keeps the outputs in the .ipynb beside the source, with the digest of
everything that they depend on: `make notebooks`. `--cache` fills the execution cache for Jupyter Book, which would
execute one page after another: `make book`. Outputs that were kept for the same digest go there as they are; other
pages are executed, the claims included. The parallel executor of jupyter-cache takes pages in their order and carries
on after an error.
"""

import argparse
import asyncio
import math
import os
import sys
import time
from contextlib import contextmanager

import jupytext
import nbformat
import yaml
from gnbook.checkout import ROOT, environment
from gnbook.checkout import chapters as all_chapters
from gnbook.digest import digest
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupytext.combine import combine_inputs_with_outputs
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

CACHE = ROOT / "_build" / ".jupyter_cache"  # where Jupyter Book looks

# One thread, also for a page that runs alone: sums of several threads round otherwise. Those that wait for work sleep.
THREADS = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}

# Versions and times would make a difference where the outputs make none.
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


class PageError(Exception):
    """A cell that raised, wrote to stderr, took too long or lost its kernel."""


class Loop(asyncio.SelectorEventLoop):
    """Without signal handlers: nbclient would use them to end one kernel of several, asyncio ends all."""

    def add_signal_handler(self, *_):
        """Say what loops say where there are none."""
        raise NotImplementedError


def main():
    """Run what the command line asks for; the exit status says whether all went well."""
    parser = argparse.ArgumentParser(description="Execute chapters and keep their outputs in the .ipynb.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="'deep-linear', 'laboratory/deep-linear'; by default all that changed"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="execute unchanged chapters too")
    which.add_argument("--cache", action="store_true", help="execute the pages of the book that the cache lacks")
    arguments = parser.parse_args()
    if arguments.names and (arguments.all or arguments.cache):
        parser.error("give names of chapters, or --all, or --cache.")
    chapters = all_chapters()
    if unknown := [name for name in arguments.names if name not in chapters]:
        parser.error(f"there is no chapter '{unknown[0]}': the chapters are {', '.join(chapters)}.")

    if arguments.cache:
        claims = [path for path in sorted((ROOT / "book").glob("*.md")) if "```{code-cell}" in path.read_text()]
        pages = {path: read(path) for path in [*chapters.values(), *claims]}
        pages = {path: notebook for path, notebook in pages.items() if not is_cached(notebook)}
        for path in [path for path, notebook in pages.items() if is_kept(path, notebook)]:
            put_into_cache(path, unfold(pages.pop(path)))
    else:
        pages = {path: read(path) for path in (chapters[name] for name in arguments.names or chapters)}
        if not (arguments.names or arguments.all):
            for path in [path for path, notebook in pages.items() if is_kept(path, notebook)]:
                keep(path, pages.pop(path))  # its prose may be another

    os.environ.update(THREADS | environment())
    try:
        with asyncio.Runner(loop_factory=Loop) as runner:
            failed = runner.run(execute_all(longest_first(pages), in_notebooks=not arguments.cache))
    except KeyboardInterrupt:
        sys.exit("Stopped; what was finished is kept.")
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}.")


def read(path):
    """Read a page, and digest everything that its outputs depend on.

    A cell of a chapter whose text is unchanged keeps the id and the outputs that it has in the .ipynb.
    """
    notebook, kept = jupytext.read(path), path.with_suffix(".ipynb")
    if kept.exists():
        notebook = combine_inputs_with_outputs(notebook, jupytext.read(kept), "ipynb")
    notebook.metadata["digest"] = digest(code(notebook), path.parent)
    return notebook


def code(notebook):
    """Return the sources of the code cells."""
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def is_cached(notebook):
    """Say whether the cache holds the outputs for the digest of this page, whole."""
    with execution_cache() as outputs:
        try:
            record = outputs.get_cache_bundle(outputs.match_cache_notebook(notebook).pk).record
            return record.data["digest"] == notebook.metadata["digest"]
        except (KeyError, ValueError):  # not there, or cut off
            return False


def is_kept(path, notebook):
    """Say whether the .ipynb holds the outputs for the digest of this page, so that `read` has read all of them."""
    if not path.with_suffix(".ipynb").exists():
        return False
    kept = jupytext.read(path.with_suffix(".ipynb"))
    return kept.metadata.get("digest") == notebook.metadata["digest"] and code(kept) == code(notebook)


@contextmanager
def execution_cache(folder=CACHE):
    """Open a cache of outputs, by default that of Jupyter Book, and close its database in the end."""
    outputs = get_cache(folder)
    try:
        yield outputs
    finally:
        outputs.db.dispose()


def put_into_cache(path, notebook, seconds=None):
    """Keep the outputs where Jupyter Book finds them, with their digest and the time that they took."""
    data = {"execution_seconds": seconds, "digest": notebook.metadata["digest"]}
    with execution_cache() as outputs:
        bundle = CacheBundleIn(notebook, str(path), data=data)
        outputs.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


def keep(path, notebook):
    """Keep the outputs in the .ipynb beside the source."""
    notebook.metadata = nbformat.from_dict(METADATA | {"digest": notebook.metadata["digest"]})
    fold(unfold(notebook))
    text, kept = nbformat.writes(notebook) + "\n", path.with_suffix(".ipynb")
    if not kept.exists() or kept.read_text("utf8") != text:
        whole = path.with_suffix(".new")
        whole.write_text(text, "utf8")
        whole.replace(kept)


def longest_first(pages):
    """Order pages by the time that they took last; new ones are first, those of most cells before others."""
    with execution_cache() as outputs:
        records = sorted(outputs.list_cache_records(), key=lambda record: record.created)
    seconds = {record.uri: record.data.get("execution_seconds") or math.inf for record in records}

    def length(path):
        return seconds.get(str(path), math.inf), len(pages[path].cells)

    return {path: pages[path] for path in sorted(pages, key=length, reverse=True)}


async def execute_all(pages, in_notebooks):
    """Execute pages in this order, as many at a time as there are processors, and name those that failed."""
    failed, done, turns = [], 0, asyncio.Semaphore(os.cpu_count())

    async def take_turn(path, notebook):
        nonlocal done
        async with turns:
            start = time.monotonic()
            try:
                await execute(path, notebook)
            except PageError as error:
                failed.append(path.stem)
                print(f"{path.relative_to(ROOT)}, {error}", file=sys.stderr, flush=True)
                return
            seconds = time.monotonic() - start
        put_into_cache(path, notebook, seconds)
        if in_notebooks:
            keep(path, notebook)
        done += 1
        print(f"{path.stem}: {seconds:.0f} s ({done} of {len(pages)})", flush=True)

    print(f"Pages to execute: {len(pages)}", flush=True)
    async with asyncio.TaskGroup() as group:
        for path, notebook in pages.items():
            group.create_task(take_turn(path, notebook))
    return failed


def fold(notebook):
    """Have Jupyter and Colab fold the code that the book folds: each has a word of its own for it."""
    for cell in notebook.cells:
        if "hide-input" in cell.metadata.get("tags", []):
            cell.metadata.jupyter, cell.metadata.cellView = {"source_hidden": True}, "form"


def unfold(notebook):
    """Leave a cell with its tags alone, as in its source, where the book and the cache look; return the notebook."""
    for cell in notebook.cells:
        cell.metadata.pop("jupyter", None)
        cell.metadata.pop("cellView", None)
    return notebook


async def execute(path, notebook):
    """Execute a notebook in place."""
    started, patience = [], yaml.safe_load((ROOT / "_config.yml").read_text())["execute"]["timeout"]
    client = NotebookClient(
        notebook,
        timeout=patience,
        startup_timeout=patience,  # a minute, by default, is little on a busy machine
        record_timing=False,
        coalesce_streams=True,
        shutdown_kernel="immediate",  # its outputs are here, and a kernel that is asked to end may not
        extra_arguments=["--log-level=ERROR"],  # a kernel warns that it speaks to this machine without encryption
        resources={"metadata": {"path": path.parent}},
        on_cell_execute=lambda cell, cell_index: started.append(cell),
    )
    try:
        await client.async_execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        raise PageError(f"code cell {len(started)}: {error}") from error
    for number, cell in enumerate(started, 1):
        for output in cell.outputs:
            if output.get("name") == "stderr":
                raise PageError(f"code cell {number} writes to stderr, a warning perhaps: {output.text}")


if __name__ == "__main__":
    main()
