"""What the project says of itself in several files, what GitHub runs of it, and the checks of shapes."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml
from gnbook.checkout import ROOT

import gnlib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read_yaml(path):
    return yaml.safe_load((ROOT / path).read_text())


def versions(pins):
    """Return versions by names, of which one may be written in several ways."""
    return {re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", pin)[0]).lower(): pin.partition("==")[2] for pin in pins}


def test_the_environment_pins_the_direct_dependencies_as_the_constraints_do():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line[:1] != "#"]
    # A local suffix ("+cpu") or a direct reference would be found on one machine only.
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines) and len(versions(lines)) == len(lines)
    *others, last = read_yaml("environment.yml")["dependencies"]
    assert f"python={PROJECT['requires-python'].removeprefix('>=')}" in others
    *pins, editable = last["pip"]
    extras = PROJECT["optional-dependencies"]
    direct = versions(requirement for group in [PROJECT["dependencies"], *extras.values()] for requirement in group)
    assert versions(pins) == {name: versions(lines)[name] for name in direct}
    assert editable == f"-e .[{','.join(extras)}]"


def test_the_citation_names_the_version_of_the_package():
    assert read_yaml("CITATION.cff")["version"] == gnlib.__version__


def test_nobody_is_told_to_install_what_another_project_calls_gnlib():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    telling = re.compile(r"\bpip install\b.*(?<![\w/])gnlib\b|\bgnlib\[|^name = \"gnlib\"", re.M)
    paths = [ROOT / name for name in listed.split("\0") if name and not name.endswith((".npz", ".png", ".svg"))]
    texts = {path: path.read_text() for path in paths if path != Path(__file__) and path.is_file()}
    assert [path for path, text in texts.items() if telling.search(text)] == []


def test_what_github_runs_is_valid_and_calls_make_and_may_only_read_the_repository():
    """Nothing is tested there that is not tested here."""
    paths = sorted((ROOT / ".github/workflows").glob("*.yml"))
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run([*command, *map(str, paths)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M)
    for path in paths:
        workflow = read_yaml(path)
        assert workflow["permissions"] == {"contents": "read"}
        jobs = [[step["run"] for step in job["steps"] if "run" in step] for job in workflow["jobs"].values()]
        commands = [command.split() for commands in jobs for command in commands]
        assert commands and all(len(commands) <= 1 for commands in jobs)
        assert all(make == "make" and target in targets for make, target, *_ in commands)
    oldest = read_yaml(".github/workflows/nightly.yml")["jobs"]["check"]["strategy"]["matrix"]["python"][0]
    assert PROJECT["requires-python"] == f">={oldest}"


TESTS = """
import jaxtyping, pytest, torch
import gnlib

def test_checked():
    with pytest.raises(jaxtyping.TypeCheckError):
        gnlib.second_moment(torch.ones(3))

@pytest.mark.bad_input
def test_unchecked():
    with pytest.raises(ValueError):
        gnlib.second_moment(torch.ones(3))
"""


def test_shapes_are_checked_where_asked_for_but_not_where_a_test_gives_wrong_arguments(tmp_path):
    (tmp_path / "test_shapes.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", ROOT / "pyproject.toml", tmp_path]
    surroundings = {**os.environ, "CHECK_SHAPES": "1"}
    done = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
