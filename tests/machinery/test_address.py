"""`make address URL=...` on a copy of the tree."""

import json
import shutil
import subprocess
import sys
import tomllib

import pytest
import yaml
from gnbook.checkout import ROOT

GITHUB = "https://github.com/someone/a-book"
FILES = ("pyproject.toml", "CITATION.cff", "README.md", "_config.yml", "_toc.yml", "book/address.py", "book/index.md")


@pytest.fixture
def tree(tmp_path):
    chapters = [path.relative_to(ROOT) for path in ROOT.glob("notebooks/**/*.*") if path.suffix in {".ipynb", ".md"}]
    for path in (*FILES, *chapters):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    return tmp_path


def address(tree, *arguments):
    command = [sys.executable, "book/address.py", *arguments]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)


def contents(tree):
    return {path: path.read_text() for path in tree.rglob("*") if path.is_file()}


def test_it_is_written_wherever_it_appears_and_a_second_run_changes_nothing(tree):
    assert address(tree, GITHUB).returncode == 0
    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    assert project["urls"] == {"Repository": GITHUB}
    assert yaml.safe_load((tree / "CITATION.cff").read_text())["repository-code"] == GITHUB
    config = yaml.safe_load((tree / "_config.yml").read_text())
    assert config["repository"]["url"] == GITHUB
    assert config["launch_buttons"]["colab_url"] == "https://colab.research.google.com"
    assert config["html"]["use_repository_button"] is True
    assert f"git clone {GITHUB} gauss-newton-book && " in (tree / "book/index.md").read_text()
    colab = "https://colab.research.google.com/github/someone/a-book/blob/main/notebooks/"
    readme = (tree / "README.md").read_text()
    for path in tree.glob("notebooks/**/*.md"):
        assert path.read_text().count(f'source = "git+{GITHUB}"') == 1
        cells = json.loads(path.with_suffix(".ipynb").read_text())["cells"]
        assert f'source = "git+{GITHUB}"' in "".join(next(c["source"] for c in cells if c["cell_type"] == "code"))
        name = path.relative_to(tree / "notebooks").with_suffix("")
        assert f"[{name}]({colab}{name}.ipynb)" in readme
    assert readme.index("/deep-linear]") < readme.index("/convolution]")  # the order of the book, not of the names
    once = contents(tree)
    assert address(tree, GITHUB + ".git").returncode == 0
    assert contents(tree) == once


def test_without_github_there_is_neither_a_colab_link_nor_a_button(tree):
    address(tree, GITHUB)
    assert address(tree, "file:///a/b").returncode == 0
    config = yaml.safe_load((tree / "_config.yml").read_text())
    assert config["repository"]["url"] == config["launch_buttons"]["colab_url"] == ""
    assert config["html"]["use_repository_button"] is False
    assert "colab.research" not in (tree / "README.md").read_text()


@pytest.mark.bad_input
def test_anything_else_is_refused_in_one_sentence(tree):
    before = contents(tree)
    for url in ("", "github.com/a/b", "https://a.org/b c", 'file:///"'):
        refused = address(tree, url)
        assert refused.returncode == 1
        assert refused.stderr == f"'{url}' is no address: give one that starts with https:// or file:///.\n"
    assert address(tree).stderr == "Say which address: make address URL=https://...\n"
    assert contents(tree) == before
