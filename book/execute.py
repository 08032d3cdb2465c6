"""Run every chapter, or those named, and keep the outputs in the .ipynb beside the source: `make notebooks`."""

import sys
from pathlib import Path

import jupytext
import nbformat
from jupytext.combine import combine_inputs_with_outputs
from nbclient import NotebookClient

# Versions and times would make a difference where the outputs make none.
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
NAMES = sys.argv[1:] or sorted(path.stem for path in NOTEBOOKS.glob("*.md"))

for source in (NOTEBOOKS / f"{name}.md" for name in NAMES):
    print(f"Running {source.name}", flush=True)
    notebook, kept = jupytext.read(source), source.with_suffix(".ipynb")
    if kept.exists():  # cells whose text is unchanged keep their ids
        notebook = combine_inputs_with_outputs(notebook, jupytext.read(kept), "ipynb")
    resources = {"metadata": {"path": source.parent}}
    client = NotebookClient(notebook, record_timing=False, timeout=None, coalesce_streams=True, resources=resources)
    client.execute()
    notebook.metadata = nbformat.from_dict(METADATA)
    nbformat.write(notebook, kept)
