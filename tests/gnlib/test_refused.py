"""Each refusal has a code, each code a section on the page on refusals, and the sentences are what they were."""

import pickle
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import gnlib
from gnlib.jacobian.gram import NotFiniteError
from gnlib.jacobian.plan import BudgetError
from gnlib.objective import NotOneNumberError
from gnlib.problem import TooSmallError
from gnlib.refused import CODES
from tests.gnlib.networks import Whole

ROOT = Path(__file__).parents[2]
SECTIONS = re.findall(r"^## (\S+)\n\n.+$", (ROOT / "book/refusals.md").read_text(), re.MULTILINE)
FREE = ("data", "laws", "linear")  # of a network they know nothing; `laws/waiting.py` is asked by `waiting()`


SOURCES = {path.relative_to(ROOT / "gnlib"): path.read_text() for path in (ROOT / "gnlib").rglob("*.py")}


def test_codes_of_the_table_are_those_that_are_raised_and_those_of_the_page_in_order():
    raised = re.findall(r'(?:Refused\(|__init__\(|\)\(|code = )\s*"([a-z-]+)"', "\n".join(SOURCES.values()))
    assert set(raised) == set(CODES) and SECTIONS == sorted(CODES) == CODES


def test_what_is_asked_of_a_network_refuses_with_a_code():
    plain = {path for path, text in SOURCES.items() if "raise ValueError(" in text and path.parts[0] not in FREE}
    assert plain == {Path("plain.py")}  # of which keep.py makes refusals


X, Y = torch.ones(3, 2), torch.zeros(3, 1)
LINE = nn.Linear(2, 1)


COUPLED = Whole(lambda self, x: self.line(x - x.mean(0) ** 2), line=LINE)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("code", "ask"),
    [
        ("no-targets", lambda: gnlib.GaussNewton(LINE, X).forecast()),
        ("no-targets", lambda: gnlib.GaussNewton(LINE, X, dtype=torch.float32).waiting()),
        ("not-finite", lambda: gnlib.GaussNewton(LINE, X * float("nan"))),
        ("too-little-memory", lambda: gnlib.GaussNewton(LINE, torch.ones(900, 2), memory=1e-5).condition_number()),
        ("samples-coupled", lambda: gnlib.GaussNewton(COUPLED, torch.rand(5, 2))),
        ("random-module", lambda: gnlib.GaussNewton(nn.Sequential(LINE, nn.Dropout()), X, mode="train")),
        ("rate-too-large", lambda: gnlib.GaussNewton(LINE, X, Y).waiting(rate=1e9)),
        ("needs-matrix", lambda: gnlib.GaussNewton(LINE, X, dtype=torch.float32).condition_number()),
        ("bad-option", lambda: gnlib.Watch(X, every=0)),
        ("wrong-targets", lambda: gnlib.report(LINE, X, torch.ones(2, 1))),
        ("zero-matrix", lambda: gnlib.condition_number(torch.zeros(2, 2))),
        ("no-parameters", lambda: gnlib.GaussNewton(nn.Linear(2, 1).requires_grad_(False), X)),
    ],
)
def test_a_refusal_has_the_code_of_what_is_wrong(code, ask):
    with pytest.raises(gnlib.Refused) as caught:
        ask()
    assert caught.value.code == code and isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "error",
    [
        gnlib.Refused("empty", "None."),
        *(kind("None.") for kind in (NotFiniteError, TooSmallError, NotOneNumberError)),
        BudgetError("None.", 2.5),
    ],
)
def test_a_refusal_crosses_to_another_process_with_its_code(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and vars(again) == vars(error) and again.code in CODES
    assert str(again) == str(error) == "None."
