"""Write the public address of the repository wherever it appears: `make address URL=https://...`.

Its one home is `Repository` in pyproject.toml; what the other files say follows from it.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
COLAB = "https://colab.research.google.com"


def main(url):
    """Replace the address in every file that bears it, whether one was set before or not."""
    if not re.fullmatch(r"https://[\w.:-]+/[\w./~-]*\w|file:///[\w./~-]*\w", url):
        sys.exit(f"'{url}' is no address: give one that starts with https:// or file:///.")
    url = url.removesuffix(".git")
    on_github = url.startswith("https://github.com/")
    site = url if on_github else ""  # the buttons of the site know GitHub, and Colab opens nothing else

    line("pyproject.toml", r"(\[project\.urls\]\n)(Repository = .*\n)?", rf'\1Repository = "{url}"\n')
    line("CITATION.cff", r"(license: .*\n)(repository-code: .*\n)?", rf'\1repository-code: "{url}"\n')
    line("_config.yml", r"(repository:\n  url: ).*", rf'\1"{site}"')
    line("_config.yml", r"(  use_repository_button: ).*", rf"\1{str(on_github).lower()}")
    line("_config.yml", r"(  colab_url: ).*", rf'\1"{COLAB if on_github else ""}"')
    chapters = re.findall(r"file: (notebooks/\S+)", (ROOT / "_toc.yml").read_text())  # in the order of the book
    notebooks = [ROOT / f"{chapter}.md" for chapter in chapters]
    for notebook in notebooks:
        for suffix in (".md", ".ipynb"):  # where the quotes are escaped
            path = notebook.with_suffix(suffix).relative_to(ROOT)
            line(path, r'(source = \\?")[^"\\]*(\\?"  # where pip finds gnlib)', rf"\1git+{url}\2")
    clone = f"git clone {url} gauss-newton-book && cd gauss-newton-book"
    line("book/index.md", r"(git clone .*\n)?(pip install \.\n)", rf"{clone}\n\2")
    line("README.md", r"(<!-- colab -->\n).*", r"\1" + colab_line(url, on_github, notebooks))


def line(path, pattern, replacement):
    """Replace the one place in a file that matches the pattern."""
    text, count = re.subn(pattern, replacement, (ROOT / path).read_text())
    if count != 1:
        sys.exit(f"{path} holds {count} places for the address, where one was expected ({pattern}).")
    (ROOT / path).write_text(text)


def colab_line(url, on_github, notebooks):
    """Return the line of the README that links the chapters in Colab."""
    if not on_github:
        return f"The repository is at <{url}>; Colab opens notebooks from GitHub only."
    blob = f"{COLAB}/github/{url.removeprefix('https://github.com/')}/blob/main/notebooks"
    names = [path.relative_to(ROOT / "notebooks").with_suffix("").as_posix() for path in notebooks]
    links = (f"[{name}]({blob}/{name}.ipynb)" for name in names)
    return f"Open a chapter in Colab: {', '.join(links)}."


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Say which address: make address URL=https://...")
    main(sys.argv[1])
