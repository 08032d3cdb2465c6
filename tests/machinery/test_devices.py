"""Each page of the laboratory computes where its parameter `device` says, so that a sweep can send it to a GPU."""

import ast

import jupytext
import pytest
from gnbook.checkout import chapters

NOTEBOOKS = {name: path for name, path in chapters().items() if name.startswith("laboratory/")}
CHOICE = "device = find_device(device)"


@pytest.fixture(params=NOTEBOOKS.values(), ids=NOTEBOOKS, scope="module")
def cells(request):
    """The code of the parameters, and of the cells after them."""
    code = [cell for cell in jupytext.read(request.param).cells if cell.cell_type == "code"]
    first = ["parameters" in cell.metadata.get("tags", []) for cell in code].index(True)
    return code[first].source, "\n".join(cell.source for cell in code[first + 1 :])


def names(tree):
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def loads_data(statement):
    return any(isinstance(node, ast.Call) and ast.unparse(node.func) == "gnlib.load" for node in ast.walk(statement))


def assigned(statement):
    return {name for target in getattr(statement, "targets", []) for name in names(target)}


def test_each_chapter_has_the_parameter_with_a_word_on_it(cells):
    lines = [line for line in cells[0].splitlines() if line.startswith("device")]
    assert [line.partition("  # ")[0] for line in lines] == ['device = "cpu"']
    assert '"auto"' in lines[0].partition("  # ")[2]


def test_the_name_is_looked_up_once_and_before_anything_is_put_there(cells):
    statements = [ast.unparse(statement) for statement in ast.parse(cells[1]).body]
    uses = [statement for statement in statements if "device" in names(ast.parse(statement))]
    assert uses.index(CHOICE) == 0 and statements.count(CHOICE) == 1
    assert len(uses) > 1


def test_all_data_go_to_the_device(cells):
    """Where they are loaded, or at a later step of what is made of them."""
    nodes = ast.walk(ast.parse(cells[1]))
    steps = [node for node in nodes if isinstance(node, ast.stmt) and not hasattr(node, "body")]
    there = {name for step in steps if "device" in names(step) for name in names(step)}
    left = [step for step in steps if loads_data(step) and "device" not in names(step)]
    assert [ast.unparse(step) for step in left if not assigned(step) & there] == []
