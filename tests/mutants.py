"""Small errors in the code, one at a time, and whether the tests of its room notice them.

    python -m tests.mutants --resume _build/mutants.json

A mutant of `tests/mutants.json`, drawn at random, is the name of a function, an expression in it and what takes its
place, so that it is found again when the function has moved. One that cannot change a result has its reason in
`equivalent`, and does not count; nor does one whose place is gone. Of the others the first 30 of each package are run.
`before` is what tests said when it was drawn.
"""

import argparse
import ast
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = {"gnlib": Path("gnlib"), "gnbook": Path("book/gnbook")}
SECONDS, COUNTED = 120, 30  # of CPU time for the tests of a mutant; mutants of each package


def expressions(node):
    """Yield the expressions that a function computes by; no annotation, no message."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in {"annotation", "returns", "decorator_list", "defaults"}:
                if not isinstance(child, (ast.Raise, ast.Assert, ast.JoinedStr)):
                    if isinstance(child, ast.expr):
                        yield child
                    yield from expressions(child)


def functions(tree, prefix=""):
    """Yield the functions of a module and the methods of its classes, by name."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield prefix + node.name, node


def sources(tree):
    """Yield the room of each file, and its path."""
    for package, folder in PACKAGES.items():
        for path in sorted((tree / folder).rglob("*.py")):
            yield str(Path(package, *path.parent.relative_to(tree / folder).parts)), path


def find(tree, mutant):
    """Return the path of a mutant's place and the expression there, its own room first, or None."""
    for room, path in sorted(sources(tree), key=lambda source: source[0] != mutant["room"]):
        text = path.read_text()
        named = functions(ast.parse(text)) if mutant["function"].rpartition(".")[2] in text else ()
        for name, function in named:
            if name == mutant["function"]:
                for node in expressions(function):
                    if ast.unparse(node) == mutant["original"]:
                        return room, path, node
    return None


def write(path, node, text):
    """Put a text in the place of an expression, whose columns count bytes."""
    lines = path.read_bytes().splitlines(keepends=True)
    head, tail = lines[node.lineno - 1][: node.col_offset], lines[node.end_lineno - 1][node.end_col_offset :]
    lines[node.lineno - 1 : node.end_lineno] = [head + f"({text})".encode() + tail]
    path.write_bytes(b"".join(lines))


def tests_of(tree, room, module, name):
    """Return the test files of a room: the one of the module's name first, then those that name the function."""
    folder = tree / "tests" / room
    paths = folder.glob("test_*.py") if room == "gnlib" else folder.rglob("test_*.py")
    named = name.lstrip("_").split(".")[0]
    order = {path: (path.stem != f"test_{module}", named not in path.read_text(), path) for path in paths}
    return [str(path.relative_to(tree)) for path in sorted(order, key=order.get)]


def pytest(tree, seconds, *tests):
    """Run tests until the first that fails; return how they end, and its name."""
    paths = os.pathsep.join(str(tree / folder) for folder in (".", "book"))
    single = dict(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=paths)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "-p", "no:cacheprovider", *tests]
    limit = partial(resource.setrlimit, resource.RLIMIT_CPU, (seconds, seconds + 5))
    done = subprocess.run(command, cwd=tree, env=os.environ | single, preexec_fn=limit, capture_output=True, text=True)
    if done.returncode == -signal.SIGXCPU:
        return "out of time", None
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if done.returncode and not failed:
        raise RuntimeError(f"No test was run by {' '.join(command)}:\n{done.stdout}{done.stderr}")
    return ("killed", failed[0].split(" ", 1)[1]) if failed else ("survived", None)


def judge(tree, mutant, sound):
    """Return what the tests of a mutant's room say of it; one that fails must pass without it, as `sound` ones do."""
    place = find(tree, mutant)
    if place is None:
        return dict(result="gone")
    room, path, node = place
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    source, used, result, by = path.read_bytes(), 0, "survived", None
    first, *others = tests_of(tree, room, path.stem, mutant["function"])
    write(path, node, mutant["replacement"])
    try:
        for some in ([first], others):  # most are killed by the test file of their module
            if some and result == "survived":
                result, by = pytest(tree, SECONDS - used, *some)
                used = round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
    finally:
        path.write_bytes(source)
    if by:
        test = by.split("[")[0].split(" - ")[0]
        if test not in sound and pytest(tree, SECONDS, test)[0] == "killed":
            result = "fails without it"
        sound.add(test)
    return dict(result=result, by=by, seconds=used, path=str(path.relative_to(tree)))


def run(mutants, resume):
    """Yield each mutant that counts with what tests say of it, as far as a file does not know it."""
    known = json.loads(resume.read_text()) if resume and resume.exists() else {}
    counted, sound = Counter(), set()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, symlinks=True, ignore=shutil.ignore_patterns(".*", "__pycache__", "_build"))
        for mutant in mutants:
            package = mutant["room"].split("/")[0]
            if counted[package] == COUNTED or "equivalent" in mutant:
                continue
            key = ": ".join(mutant[part] for part in ("room", "function", "original", "replacement"))
            if key not in known:
                known[key] = judge(tree, mutant, sound)
                if resume:
                    resume.write_text(json.dumps(known, indent=1))
            counted[package] += known[key]["result"] != "gone"
            yield mutant, known[key]


def main():
    """Run the mutants and say how many are killed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--resume", type=Path, help="keep results in this file, and go on from it")
    resume, killed = parser.parse_args().resume, Counter()
    for mutant, found in run(json.loads((ROOT / "tests/mutants.json").read_text()), resume):
        print(mutant["function"], mutant["original"], mutant["replacement"], *found.values(), sep=" | ", flush=True)
        if found["result"] != "gone":
            killed.update(before=mutant.get("before") == "killed", now=found["result"] == "killed")
    print(f"{killed['now']} are killed, {killed['before']} before.")
    sys.exit(killed["now"] < killed["before"])


if __name__ == "__main__":
    main()
