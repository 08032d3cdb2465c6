"""The cases of a grid fitted to the parameters of a notebook."""

import pytest
import yaml
from gnbook.sweep.plan import make_plan

bad_input = pytest.mark.bad_input


def test_values_take_the_type_of_the_default(notebook):
    (run,) = make_plan(notebook, {"parameters": {"scale": 2, "rates": [1, 2], "shape": [1, "a"], "last": "b"}}).runs
    assert run.complete["scale"] == 2.0 and isinstance(run.complete["scale"], float)
    assert all(isinstance(rate, float) for rate in run.complete["rates"])
    assert run.given == {"scale": 2.0, "rates": [1.0, 2.0], "shape": [1, "a"], "last": "b"}
    assert run.complete["seed"] == 0


@bad_input
@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"widht": 1}, "tiny.ipynb has no parameter 'widht'; did you mean 'width'?"),
        ({"zzz": 1}, "has no parameter 'zzz'; it has seed, width"),
        ({"width": 1.5}, "takes for width a whole number such as 3; the grid gives 1.5, a number."),
        ({"width": True}, "the grid gives True, true or false"),
        ({"scale": "1e-3"}, "write 1.0e-3"),
        ({"scale": None}, "the grid gives None, nothing"),
        ({"whiten": 1}, "takes for whiten true or false such as True; the grid gives 1"),
        ({"name": 1}, "takes for name text such as 'a'"),
        ({"sizes": 1}, "give a list of lists"),
        ({"sizes": [1, "a"]}, "takes for sizes a list such as [1, 2]; the grid gives [1, 'a']"),
        ({"shape": yaml.safe_load("2026-01-01")}, "takes for shape plain numbers and text"),
    ],
)
def test_a_case_that_does_not_fit_the_notebook_is_told_why(parameters, complaint, notebook):
    with pytest.raises(ValueError) as error:
        make_plan(notebook, {"parameters": parameters})
    assert complaint in str(error.value)
