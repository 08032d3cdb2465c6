"""Small errors in the code, one at a time, and whether the tests of its room notice them.

    python -m tests.mutants draw 44 > drawn.json          # 100 mutants in gnlib, 100 in gnbook, to be read
    python -m tests.mutants run --resume _build/mutants.json

A mutant is kept as the name of a function, an expression in it and what takes its place, so that it is found again when
the function has moved. One that cannot change a result has its reason in `equivalent`, and does not count; nor does one
whose place is gone. Of the others the first 30 of each package are run. `before` is what tests said when it was drawn.
"""

import argparse
import ast
import copy
import json
import os
import random
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
SECONDS, COUNTED, DRAWN = 120, 30, 100  # of CPU time for the tests of a mutant; mutants of each package
NOT_DRAWN = {  # no mathematics, or networks and trainings, which a room has of its own or shares
    *("sweep", "data", "figures", "tables", "moving", "results", "drawing", "text", "files", "progress", "__main__"),
    *("report", "remarks", "printed", "published", "networks", "trainings", "training", "recipes", "augmentation"),
    *("measured", "lines", "rows"),
}
FLIPPED = {ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
SWAPPED = {"max": "min", "amax": "amin", "maximum": "minimum", "argmax": "argmin", "clamp_min": "clamp_max"}
SWAPPED |= {b: a for a, b in SWAPPED.items()} | {"mean": "sum"}
DROPPED = {"sqrt", "square", "abs", "transpose"}
SEQUENCES = ast.List, ast.Tuple, ast.ListComp, ast.JoinedStr


def mutations(node):
    """Yield what may stand in the place of an expression."""
    match node:
        case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult() as op, right):
            texts = (
                isinstance(side, SEQUENCES) or isinstance(getattr(side, "value", 0), str) for side in (left, right)
            )
            if not any(texts):
                yield ast.BinOp(left, ast.Sub() if isinstance(op, ast.Add) else ast.Add(), right)
        case ast.BinOp(left, ast.Div()):
            yield left
        case ast.UnaryOp(ast.USub() | ast.Not(), operand) if not isinstance(operand, ast.Constant):
            yield operand
        case ast.Compare(left, [op], right) if type(op) in FLIPPED:
            yield ast.Compare(left, [FLIPPED[type(op)]()], right)
        case ast.BoolOp(op, values):
            yield ast.BoolOp(ast.And() if isinstance(op, ast.Or) else ast.Or(), values)
        case ast.Attribute(value, "mT" | "T"):
            yield value
        case ast.Call(ast.Name("range"), [*first, last]):
            yield ast.Call(node.func, [*first, ast.BinOp(last, ast.Sub(), ast.Constant(1))], [])
        case ast.Call(ast.Name(name), arguments, keywords) if name in SWAPPED:
            yield ast.Call(ast.Name(SWAPPED[name]), arguments, keywords)
        case ast.Call(ast.Attribute(value, name), arguments, keywords):
            if name in SWAPPED:
                yield ast.Call(ast.Attribute(value, SWAPPED[name]), arguments, keywords)
            elif name in DROPPED:
                yield arguments[0] if isinstance(value, ast.Name) and value.id in {"torch", "math", "np"} else value
        case ast.Subscript(value, ast.Tuple(indices)):
            for i, index in enumerate(indices):
                for other in shifted(index):
                    yield ast.Subscript(value, ast.Tuple([*indices[:i], other, *indices[i + 1 :]]))
        case ast.Subscript(value, index):
            for other in shifted(index):
                yield ast.Subscript(value, other)


def shifted(index):
    """Yield an index from the end or a slice that is off by one; others mostly run out of what they index."""
    match index:
        case ast.UnaryOp(ast.USub(), ast.Constant(int(number))):
            yield ast.UnaryOp(ast.USub(), ast.Constant(number + 1))
        case ast.Slice(ast.Constant(int(number)), upper, step):
            yield ast.Slice(ast.Constant(number + 1), upper, step)
        case ast.Slice(lower, upper, step) if upper is not None:
            yield ast.Slice(lower, ast.BinOp(upper, ast.Sub(), ast.Constant(1)), step)


def expressions(node, above=()):
    """Yield the expressions that a function computes by, with all that they stand in; no annotation, no message."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in {"annotation", "returns", "decorator_list", "defaults"}:
                if not isinstance(child, (ast.Raise, ast.Assert, ast.JoinedStr)):
                    if isinstance(child, ast.expr):
                        yield child, (node, *above)
                    yield from expressions(child, (node, *above))


def functions(tree, prefix=""):
    """Yield the functions of a module and the methods of its classes, by name."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield prefix + node.name, node


def candidates(function):
    """Yield pairs of texts: an expression that stands once in a function, and what to put in its place."""
    count = Counter(ast.unparse(node) for node, _ in expressions(function))
    for node, above in expressions(function):
        checks = isinstance(above[0], ast.If) and node is above[0].test and isinstance(above[0].body[0], ast.Raise)
        for other in [ast.Constant(False)] if checks else mutations(node):
            for outer in (node, *above):  # the smallest that stands there once
                if not isinstance(outer, ast.expr) or isinstance(outer, (ast.Tuple, ast.Starred)):
                    continue
                if count[ast.unparse(outer)] == 1:
                    yield ast.unparse(outer), ast.unparse(put(other, node, outer))
                    break


def put(other, node, outer):
    """Return a copy of an expression with one in the place of another within it."""
    return copy.deepcopy(outer, {id(node): other})


def sources(tree):
    """Yield the room of each file, and its path."""
    for package, folder in PACKAGES.items():
        for path in sorted((tree / folder).rglob("*.py")):
            yield str(Path(package, *path.parent.relative_to(tree / folder).parts)), path


def draw(seed):
    """Return mutants of functions drawn at random, one of each."""
    generator, drawn = random.Random(seed), []
    for package in PACKAGES:
        found = {}
        for room, path in sources(ROOT):
            if room.split("/")[0] == package and not NOT_DRAWN & {*room.split("/"), path.stem}:
                for name, function in functions(ast.parse(path.read_text())):
                    if not name.rpartition(".")[2].startswith("__") and (pairs := [*candidates(function)]):
                        found.setdefault((room, name), []).append(pairs)
        alone = {place: pairs for place, (pairs, *others) in found.items() if not others}
        for room, name in generator.sample(sorted(alone), DRAWN):
            original, replacement = generator.choice(alone[room, name])
            drawn.append(dict(room=room, function=name, original=original, replacement=replacement))
    return drawn


def find(tree, mutant):
    """Return the path of a mutant's place and the expression there, its own room first, or None."""
    for room, path in sorted(sources(tree), key=lambda source: source[0] != mutant["room"]):
        text = path.read_text()
        named = functions(ast.parse(text)) if mutant["function"].rpartition(".")[2] in text else ()
        for name, function in named:
            if name == mutant["function"]:
                for node, _ in expressions(function):
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
    """Draw mutants, or run them and say how many are killed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("draw").add_argument("seed", type=int)
    commands.add_parser("run").add_argument("--resume", type=Path, help="keep results in this file, and go on from it")
    arguments = parser.parse_args()
    if arguments.command == "draw":
        print("[", ",\n".join(json.dumps(mutant) for mutant in draw(arguments.seed)), "]", sep="\n")
        return
    killed = Counter()
    for mutant, found in run(json.loads((ROOT / "tests/mutants.json").read_text()), arguments.resume):
        print(mutant["function"], mutant["original"], mutant["replacement"], *found.values(), sep=" | ", flush=True)
        if found["result"] != "gone":
            killed.update(before=mutant.get("before") == "killed", now=found["result"] == "killed")
    print(f"{killed['now']} are killed, {killed['before']} before.")
    sys.exit(killed["now"] < killed["before"])


if __name__ == "__main__":
    main()
