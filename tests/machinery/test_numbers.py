"""Kept outputs compared by words and numbers."""

from types import SimpleNamespace

import nbformat
import pytest

from tests.numbers import compare_as_numbers, differences

KEPT = "method    κ     residual  steps\nfloat64  27,925  8.43e-29  -402"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("method    κ   residual  steps\nfloat64  28,100  8.44e-29  -398", KEPT),  # numbers, and how wide columns are
        ("0 to 3e-16", "-2.1e-15 to 0"),  # rounding
        ("κ=1.01, 99 %, [1. 2.]", "κ=1.0, 98 %, [1. 2.01]"),
        ("1000 steps, inf and nan", "1,001 steps, inf and nan"),
    ],
)
def test_what_another_processor_makes_of_it_is_the_same(text, kept):
    assert differences(text, kept) == []


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("κ = 105.0", "κ = 100.0"),
        ("κ = 1,346", "κ = 1,346 or so"),
        ("largest 3.0", "smallest 3.0"),
        ("3.0", "-3.0"),
        ("1 of 8", "2 of 8"),
        ("1e-11", "3e-11"),
        ("inf", "1e300"),
        ("float32", "float64"),
        ("", "1"),
    ],
)
def test_what_is_not_the_same_is_told(text, kept):
    assert len(differences(text, kept)) == 1 == len(differences(kept, text))


def cell(kept, **metadata):
    """A cell of nbval that keeps the output of a table."""
    outputs = [nbformat.v4.new_output("display_data", {"text/plain": kept, "image/png": "a"})]
    found = SimpleNamespace(
        cell=nbformat.v4.new_code_cell(outputs=outputs, metadata=metadata),
        parent=SimpleNamespace(skip_compare=("image/png",)),
    )
    compare_as_numbers(found)
    return found


def agrees(found, text):
    outputs = [nbformat.v4.new_output("display_data", {"text/plain": text, "image/png": "b"})]
    return found.compare_outputs(outputs, found.cell.outputs)


def test_a_cell_says_how_far_its_numbers_may_be_off():
    found = cell("loss 0.10")
    assert not agrees(found, "loss 0.11")
    assert found.comparison_traceback == ["  text/plain: 0.11 where 0.10 was kept, in 'loss 0.11'"]
    assert not found.compare_outputs([nbformat.v4.new_output("stream", text="loss 0.10")], found.cell.outputs)
    assert agrees(cell("loss 0.10", tolerance=0.1), "loss 0.11")
    assert not agrees(cell("loss 1e-9"), "loss 3e-10")
    assert agrees(cell("loss 1e-9", rounding=1e-8), "loss 3e-10")
