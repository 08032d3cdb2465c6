"""Results come back from files as they were, and a file that cannot be read says why in one sentence."""

import dataclasses
import errno
import json
import math
import os
from functools import partial

import pytest
import torch
from torch import nn

import gnlib
from gnlib import keep, origin, plain
from gnlib.files import open_atomic, write
from tests.gnlib.networks import perceptron

X = torch.randn(33, 4, generator=torch.Generator().manual_seed(0))
Y = torch.randn(33, 2, generator=torch.Generator().manual_seed(1))


network = partial(perceptron, 4, 2, width=12)
G = gnlib.GaussNewton(network(), X, Y)
H = gnlib.GaussNewton(network(), X, Y, dtype=torch.float32)
RESULTS = {
    "ConditionNumber": G.condition_number,
    "Waiting": G.waiting,
    "StableRate": G.stable_rate,
    "Forecast": lambda: G.forecast(steps=40),
    "LossBounds": lambda: G.loss_bounds(steps=40),
    "Eigenpairs": lambda: G.eigenpairs(2, seed=3),
    "Estimate": lambda: G.trace(seed=3),
    "SpectralDensity": lambda: G.spectral_density(seed=3),
    "Shares": G.by_layer,
    "Culprits": G.culprits,
    "Growth": lambda: G.report(budget=1e-3).growth,
    "Report": lambda: G.report(budget=1e-3),
    "Overview": lambda: H.report(budget=1e-3),
}


@pytest.mark.parametrize("name", keep.KINDS)
def test_a_result_comes_back_as_it_was(name, tmp_path):
    result, path = RESULTS[name](), tmp_path / "result.json"
    gnlib.save(result, path)
    found = gnlib.load_result(path)
    assert type(found) is type(result) and type(result).__name__ == name
    assert found.to_dict() == result.to_dict() and str(found) == str(result)
    if type(result).__eq__ is not object.__eq__ and name not in ("Report", "Overview"):  # which hold tensors
        assert found == result
    for key, value in vars(result).items() if hasattr(result, "__dict__") else ():
        if isinstance(value, torch.Tensor):
            assert torch.equal(getattr(found, key), value)
    assert result.to_dict().get("seed", 3) == (0 if name == "Growth" else 3)
    assert [*tmp_path.iterdir()] == [path]


def test_a_stable_rate_by_products_still_has_no_smallest_eigenvalue(tmp_path):
    for g, path in ((H, tmp_path / "h.json"), (G, tmp_path / "g.json")):
        gnlib.save(g.stable_rate(), path)
    with pytest.raises(ValueError, match="smallest eigenvalue was not found"):
        gnlib.load_result(tmp_path / "h.json").smallest  # noqa: B018
    assert gnlib.load_result(tmp_path / "g.json").left(10) == G.stable_rate().left(10)


def test_numbers_that_json_has_not_are_strings_in_the_file_alone(tmp_path):
    never = gnlib.GaussNewton(nn.Linear(1, 1, bias=False), torch.ones(2, 1), torch.tensor([[5.0], [-5.0]])).waiting()
    gnlib.save(never, tmp_path / "w.json")
    text = (tmp_path / "w.json").read_text()
    assert "Infinity" not in text and '"lower": "inf"' in text and gnlib.load_result(tmp_path / "w.json") == never
    losses = torch.tensor([1.0, math.inf, math.nan], dtype=torch.float64)
    curve = dataclasses.replace(G.forecast(steps=2), losses=losses, followed=torch.tensor([]))
    found = plain.of_dict(type(curve), json.loads(json.dumps(curve.to_dict(), allow_nan=False)))
    torch.testing.assert_close(found.losses, losses, rtol=0, atol=0, equal_nan=True)


def origin_of(*given, mode=None):
    return gnlib.GaussNewton(*given, dtype=torch.float32, mode=mode)._side.origin


def test_the_origin_tells_data_and_parameters_apart_and_not_the_way_they_were_computed():
    first, second, changed = G.report(budget=1e-3).origin, H.report(budget=1e-3).origin, network()
    assert first._replace(dtype="float32") == second and first.dtype == "float64"
    assert first.parameters == origin.digest([[*network().parameters()]])
    with torch.no_grad():
        changed[2].bias[1] += 1e-6
    for index, given in ((3, (changed, X, Y)), (1, (network(), X + 1, Y)), (2, (network(), X, Y + 1))):
        found = origin_of(*given)
        assert [i for i in range(4) if found[i] != second[i]] == [index]
    assert origin_of(network(), X).targets is None
    pair = (X, X[:, :2])
    assert origin.digest([tuple(a[:7] for a in pair), tuple(a[7:] for a in pair)]) == origin.digest([pair])
    assert origin.digest([X.view(66, 2)]) != origin.digest([X]) != origin.digest([X.bfloat16()])
    moved, still = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    moved.load_state_dict(still.state_dict() | {"1.running_mean": torch.ones(3)})
    for mode in ("eval", "train"):  # where outputs do not depend on running statistics
        assert (origin_of(moved.eval(), X, mode=mode) == origin_of(still.eval(), X, mode=mode)) == (mode == "train")


def kept(tmp_path, **changes):
    """Return the path of a kept condition number with some entries of the file changed."""
    path = tmp_path / "c.json"
    gnlib.save(G.condition_number(), path)
    document = json.loads(path.read_text())
    assert document["versions"].keys() == {"gnlib", "torch", "python"} and document["dtype"] == "float64"
    result = {**document["result"], **changes.pop("result", {})}
    text = json.dumps({**document, "result": {k: v for k, v in result.items() if v != "gone"}, **changes})
    path.write_text(text[: changes.get("length")])
    return path


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"class": "Oracle"}, "holds a 'Oracle', which gnlib .* does not know: ConditionNumber"),
        ({"format": 2, "versions": {"gnlib": "9.9"}}, "is of format 2, by gnlib 9.9; gnlib .* reads format 1"),
        ({"format": "one"}, "is damaged, or no result that gnlib.save wrote; save it again"),
        ({"length": -20}, "is damaged"),
        ({"result": {"largest": "large"}}, "is damaged.*: largest is 'large', which it cannot be; save it again"),
        ({"result": {"rank": 3.5}}, "rank is '3.5', which it cannot be"),
        ({"result": {"rank": True}}, "rank is 'True', which it cannot be"),
        ({"result": {"smallest": "gone"}}, "the result has no smallest"),
        ({"result": {"colour": 1}}, "the result has 'colour', which no ConditionNumber has"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path, changes, says):
    with pytest.raises(ValueError, match=says) as caught:
        gnlib.load_result(kept(tmp_path, **changes))
    assert "c.json" in str(caught.value) and "\n" not in str(caught.value)
    assert gnlib.load_result(kept(tmp_path, result={"seconds": "gone"})) == G.condition_number()


@pytest.mark.bad_input
def test_what_is_no_result_and_what_is_too_long_is_not_kept(tmp_path, monkeypatch):
    with pytest.raises(TypeError, match="of type Tensor; save keeps those of GaussNewton: ConditionNumber"):
        gnlib.save(X, tmp_path / "x.json")
    monkeypatch.setattr(plain, "MOST", 100)
    with pytest.raises(ValueError, match="vectors has 132 numbers, too many for text"):
        gnlib.save(G.eigenpairs(2), tmp_path / "x.json")
    assert not [*tmp_path.iterdir()]


def test_open_atomic_replaces_only_when_complete(tmp_path):
    path = tmp_path / "new" / "file"
    write(path, b"one")
    with open_atomic(path) as file:
        file.write(b"two")
        assert path.read_bytes() == b"one"
    with pytest.raises(ZeroDivisionError), open_atomic(path) as file:
        file.write(b"three")
        raise ZeroDivisionError
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_disk_that_fills_leaves_the_file_before_and_says_where(step, tmp_path, monkeypatch):
    path = tmp_path / "file"
    write(path, "whole, with an umlaut: ü")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, step, full)
    sentence = r"^file cannot be written in .* \(No space left on device\); make the directory writable"
    with pytest.raises(OSError, match=sentence) as raised:
        write(path, b"another")
    assert raised.value.errno == errno.ENOSPC
    assert path.read_text(encoding="utf8") == "whole, with an umlaut: ü"
    assert list(tmp_path.iterdir()) == [path]
