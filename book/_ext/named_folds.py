"""A Sphinx extension that gives each folded cell a name of its own, by what it draws, shows or defines.

A cell that names itself, by `code_prompt_show` in its metadata, keeps its name.
"""

import ast
import re

from docutils import nodes

UNNAMED = "Show code cell {type}"  # the default of myst_nb
LENGTH = 70  # of a name
SHOWN = 4  # names that are defined


def shortened(text):
    """Return the first sentence of a text, or its first words."""
    sentence = re.split(r"(?<=[^.])[.:;](?:\s|$)", " ".join(text.split()))[0]
    words = sentence[: LENGTH + 1].rsplit(" ", 1)[0] if len(sentence) > LENGTH else sentence
    return words if words == sentence else f"{words} ..."


def defined(source):
    """Return the names that a cell binds, in their order; those of imports only if it does nothing else."""
    lines = (re.sub(r"^[%!].*", "pass", line) for line in source.splitlines())
    names, modules = [], []
    for node in ast.parse("\n".join(lines)).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            modules += [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
    return [name for name in dict.fromkeys(names or modules) if not name.startswith("_")]


def name_of(cell):
    """Return the name of a folded cell."""
    if "tag_parameters" in cell["classes"]:
        return "The parameters"
    caption = next(iter(cell.findall(nodes.caption)), None)
    if caption is not None:
        return f"The drawing: {shortened(caption.astext())}"
    tables = [re.search(r"<caption[^>]*>(.*?)</caption>", raw.astext(), re.S) for raw in cell.findall(nodes.raw)]
    title = next((re.sub(r"<[^>]+>", "", found[1]) for found in tables if found), None)
    if title:
        return f"The table: {shortened(title)}"
    source = next(iter(cell.findall(nodes.literal_block)), None)
    names = defined(source.astext()) if source is not None else []
    return (
        f"Code: {', '.join(names[:SHOWN])}{', ...' if len(names) > SHOWN else ''}" if names else "Code: what is shown"
    )


def name_folds(app, doctree):
    """Name the folded cells of a page."""
    for cell in doctree.findall(nodes.container):
        if cell.get("prompt_show") == UNNAMED:
            cell["prompt_show"] = name_of(cell)
            cell["prompt_hide"] = cell["prompt_show"]


def setup(app):
    """Wait for each page that was read."""
    app.connect("doctree-read", name_folds)
    return {"parallel_read_safe": True}
