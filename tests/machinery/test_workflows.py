"""What GitHub is to run is valid, few lines, and calls `make`: nothing is tested there that is not tested here."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))


def test_they_are_valid():
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run([*command, *map(str, WORKFLOWS)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_calls_make_and_may_only_read_the_repository(path):
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    jobs = [[step["run"] for step in job["steps"] if "run" in step] for job in workflow["jobs"].values()]
    commands = [command.split() for commands in jobs for command in commands]
    assert commands and all(len(commands) <= 1 for commands in jobs)
    assert all(make == "make" and target in TARGETS for make, target, *_ in commands)


def test_every_night_begins_with_the_oldest_python_that_is_accepted():
    jobs = yaml.safe_load((ROOT / ".github/workflows/nightly.yml").read_text())["jobs"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={jobs['check']['strategy']['matrix']['python'][0]}"


def test_the_hooks_of_a_commit_call_what_the_environment_holds():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    entries = [hook["entry"].split()[0] for repo in config["repos"] for hook in repo["hooks"]]
    assert {Path(entry).name for entry in entries} == {"mypy", "pytest", "ruff"}
    assert all(entry.startswith(".venv/bin/") for entry in entries)
