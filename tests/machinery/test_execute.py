"""`make notebooks` and `make book` on a book of small pages."""

import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jupytext
import nbformat
import psutil
import pytest
from gnbook.checkout import ROOT
from myst_nb.core.read import read_myst_markdown_notebook
from myst_parser.config.main import MdParserConfig

from book.execute import execution_cache, read

PAGES = [
    path for path in [*ROOT.glob("*/*.md"), *ROOT.glob("notebooks/*/*.md")] if "```{code-cell}" in path.read_text()
]
HEADER = """\
---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---
"""
# Two processors, whatever the machine has; the folder of the script comes first, as for `python book/execute.py`.
SCRIPT = """
import os, runpy, sys
os.cpu_count, sys.path[0] = lambda: 2, "book"
runpy.run_path("book/execute.py", run_name="__main__")
"""
MACHINERY = [
    "book/execute.py",
    *(f"book/gnbook/{name}.py" for name in ("__init__", "checkout", "digest", "results")),
    *(f"tests/{name}.py" for name in ("numbers", "threads")),
]
LOGGED = "open('../log', 'a').write('{}\\n')"  # a cell that leaves a trace of having been run


@pytest.fixture
def tree(tmp_path):
    for path in MACHINERY:
        (tmp_path / path).parent.mkdir(exist_ok=True, parents=True)
        shutil.copy(ROOT / path, tmp_path / path)
    (tmp_path / "_config.yml").write_text("execute:\n  timeout: 60\n")
    for path in ("constraints.txt", "book/picture.py", "gnlib/__init__.py", "gnlib/used.py", "notebooks/a.md", "log"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    return tmp_path


def write(tree, name, *cells):
    text = "\n".join(f"```{{code-cell}} ipython3\n{cell}\n```\n" for cell in cells)
    (tree / name).write_text(f"{HEADER}\n# A page\n\n{text}")


def start(tree, *arguments):
    def interruptible():  # what a shell starts in the background ignores Ctrl-C, and so do its children
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    command = [sys.executable, "-c", SCRIPT, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=tree, preexec_fn=interruptible, **pipes)


def execute(tree, *arguments):
    process = start(tree, *arguments)
    output, errors = process.communicate()
    return process.returncode, output, errors


def log(tree):
    return (tree / "log").read_text().split()


def cache(tree):
    return execution_cache(tree / "_build/.jupyter_cache")


def records(tree):
    with cache(tree) as outputs:
        return outputs.list_cache_records()


def rendered(tree, name):
    """The outputs of the last cell of a chapter as Jupyter Book finds them."""
    with cache(tree) as outputs:
        _, notebook = outputs.merge_match_into_notebook(jupytext.read(tree / f"notebooks/{name}.md"))
    return notebook.cells[-1].outputs[0].text


def texts(path):
    return ["".join(o.get("text", "") for o in c.outputs) for c in jupytext.read(path).cells if c.cell_type == "code"]


def test_outputs_are_kept_and_nothing_is_executed_twice_while_all_that_it_depends_on_is_as_it_was(tree):
    write(tree, "notebooks/a.md", LOGGED.format("a"), "import gnlib.used\nprint('of a')")
    write(tree, "book/claims.md", LOGGED.format("claims"), "import gnlib.used")
    (tree / "book/prose.md").write_text("# No cells\n")
    status, output, _ = execute(tree, "a")  # `make notebooks` fills the cache too
    assert status == 0 and re.fullmatch(r"Pages to execute: 1\na: \d+ s \(1 of 1\)\n", output)
    assert records(tree)[0].data["execution_seconds"] > 0
    assert sorted(path.name for path in (tree / "notebooks").iterdir()) == ["a.ipynb", "a.md"]
    first = nbformat.read(tree / "notebooks/a.ipynb", 4)
    assert execute(tree, "--cache")[0] == 0
    assert log(tree) == ["a", "claims"]
    assert execute(tree, "--cache")[:2] == (0, "Pages to execute: 0\n")
    shutil.rmtree(tree / "_build")  # then the outputs of a are those that its notebook keeps
    (tree / "gnlib/used.py").write_text('"""A remark."""\n')
    assert execute(tree, "--cache")[1].startswith("Pages to execute: 1\nclaims: ")
    assert rendered(tree, "a") == "of a\n"
    source = tree / "notebooks/a.md"
    source.write_text(source.read_text().replace("# A page", "# Another title"))
    assert execute(tree)[1] == "Pages to execute: 0\n"
    again = nbformat.read(tree / "notebooks/a.ipynb", 4)
    assert again.cells[0].source == "# Another title"
    assert [cell.id for cell in again.cells[1:]] == [cell.id for cell in first.cells[1:]]
    (tree / "gnlib/used.py").write_text("changed = True\n")
    assert execute(tree, "--cache")[1].startswith("Pages to execute: 2\n")
    assert execute(tree, "--all")[1].startswith("Pages to execute: 1\n")


def nbval(tree, *options):
    shutil.copy(ROOT / "notebooks/conftest.py", tree / "notebooks")
    (tree / "pytest.ini").write_text("[pytest]\npythonpath = . book\naddopts = --import-mode=importlib\n")
    command = [sys.executable, "-m", "pytest", "--nbval-lax", *options, "notebooks"]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.nightly
def test_nbval_executes_what_has_changed_and_compares_numbers_and_the_book_does_not_execute_it_again(tree):
    """Another `gnlib` comes first on the path, as an editable installation of another clone might."""
    where = "import gnlib.used, pathlib\nprint(pathlib.Path(gnlib.__file__).parent.parent.name)"
    number = ":tags: [nbval-check-output]\n\nprint('steps:', open('../number').read())"  # a file that no digest knows
    write(tree, "notebooks/a.md", where, LOGGED.format("a"), number)
    (tree / "number").write_text("400")
    assert execute(tree)[0] == 0
    assert texts(tree / "notebooks/a.ipynb") == [f"{tree.name}\n", "", "steps: 400\n"]
    shutil.rmtree(tree / "_build")
    status, output = nbval(tree)
    assert status == 0 and "1 of 1 notebooks are unchanged" in output
    assert log(tree) == ["a"]
    (tree / "number").write_text("407")
    assert nbval(tree, "--unchanged")[0] == 0
    (tree / "number").write_text("421")
    status, output = nbval(tree, "--unchanged")
    assert status == 1 and "421 where 400 was kept" in output
    assert execute(tree, "--cache")[1] == "Pages to execute: 0\n"
    assert rendered(tree, "a") == "steps: 400\n"
    (tree / "number").write_text("400")
    (tree / "gnlib/used.py").write_text("changed = True\n")
    assert nbval(tree)[0] == 0
    assert execute(tree, "--cache")[1] == "Pages to execute: 0\n"
    assert log(tree) == ["a"] * 4
    assert records(tree)[0].data["execution_seconds"] > 0


def test_an_error_names_the_page_and_the_cell_and_the_others_are_finished(tree):
    (tree / "_config.yml").write_text("execute:\n  timeout: 5\n")
    wrong = {
        "a": (
            "def inverse(x):\n    return 1 / x\n\ninverse(0)",
            r"inverse\(0\)(.|\n)*return 1 / x(.|\n)*division by zero",
        ),
        "b": ("import warnings\nwarnings.warn('look out')", "look out"),
        "c": ("import os\nos._exit(1)", "Kernel died"),
        "d": ("import time\ntime.sleep(60)", "timed out"),
    }
    for name, (cell, _) in wrong.items():
        write(tree, f"notebooks/{name}.md", "1", cell, "3")
    write(tree, "notebooks/e.md", "print('right')")
    status, _, errors = execute(tree)
    errors = re.sub(r"\x1b\[[\d;]*m", "", errors)  # without colours
    assert status == 1
    for name, (_, message) in wrong.items():
        assert re.search(rf"^notebooks/{name}\.md, code cell 2(.|\n)*{message}", errors, re.MULTILINE), errors
        assert not (tree / f"notebooks/{name}.ipynb").exists()
    assert sorted(re.search(r"Failed: (.*)\.\n$", errors)[1].split(", ")) == list(wrong)
    assert texts(tree / "notebooks/e.ipynb") == ["right\n"]
    assert [Path(record.uri).stem for record in records(tree)] == ["e"]


def test_stopped_it_leaves_no_kernel_and_nothing_half_written(tree):
    for name in "ab":
        write(tree, f"notebooks/{name}.md", LOGGED.format(name), "import time\ntime.sleep(600)")
    process = start(tree)
    while len(log(tree)) < 2:
        assert process.poll() is None
        time.sleep(0.05)
    kernels = psutil.Process(process.pid).children(recursive=True)
    assert len(kernels) >= 2
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert psutil.wait_procs(kernels, timeout=30)[1] == []
    assert errors.endswith("Stopped; what was finished is kept.\n")
    assert sorted(path.name for path in (tree / "notebooks").iterdir()) == ["a.md", "b.md"]
    assert records(tree) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_jupyter_book_finds_a_page_as_this_reads_it(page, tmp_path):
    """It would run it once more otherwise, and nobody would notice."""
    theirs = read_myst_markdown_notebook(page.read_text(), MdParserConfig(), add_source_map=True, path=str(page))
    with execution_cache(tmp_path) as outputs:
        keys = [outputs.create_hashed_notebook(notebook)[1] for notebook in (read(page), theirs)]
    assert keys[0] == keys[1]
