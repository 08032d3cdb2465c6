"""The dependencies are named in pyproject.toml and pinned, once, in constraints.txt."""

import re
import subprocess
import tomllib
from pathlib import Path

import yaml

import gnlib

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONSTRAINTS = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line[:1] != "#"]
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
*ENVIRONMENT_PINS, EDITABLE = ENVIRONMENT[-1]["pip"]


def name(requirement):
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


def versions(pins):
    return {name(pin): pin.partition("==")[2] for pin in pins}


def test_every_constraint_is_one_exact_public_version():
    # A local suffix ("+cpu") or a direct reference would be found on one machine only.
    assert [pin for pin in CONSTRAINTS if not re.fullmatch(r"[\w.-]+==[\w.]+", pin)] == []
    assert len(versions(CONSTRAINTS)) == len(CONSTRAINTS)


def test_the_environment_pins_the_direct_dependencies_as_the_constraints_do():
    extras = PROJECT["optional-dependencies"]
    direct = {name(r) for group in [PROJECT["dependencies"], *extras.values()] for r in group}
    pins = versions(CONSTRAINTS)
    assert direct <= pins.keys()
    assert versions(ENVIRONMENT_PINS) == {dependency: pins[dependency] for dependency in direct}
    assert f"-e .[{','.join(extras)}]" == EDITABLE


def test_the_environment_asks_for_a_python_that_the_package_accepts():
    minimum = PROJECT["requires-python"].removeprefix(">=")
    assert f"python={minimum}" in ENVIRONMENT


def test_the_citation_names_the_version_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == gnlib.__version__


def test_nobody_is_told_to_install_what_another_project_calls_gnlib():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    telling = re.compile(r"\bpip install\b.*(?<![\w/])gnlib\b|\bgnlib\[|^name = \"gnlib\"", re.M)
    found = []
    for path in (ROOT / name for name in listed.split("\0") if name):
        if path.suffix in {".npz", ".png", ".svg"} or path == Path(__file__) or not path.is_file():
            continue
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in telling.finditer(path.read_text())]
    assert found == []
