"""The book's own modules: tables that it keeps, figures with a slider, processes that run its code, examples."""

import doctest
import importlib
import os
import pkgutil
from base64 import b64decode

import gnbook
import numpy as np
import pandas
import pytest
from bs4 import BeautifulSoup
from gnbook import checkout, results
from gnbook.checkout import ROOT
from gnbook.moving import SCRIPT, Curve, Moving

TABLES = sorted((ROOT / "book" / "results").glob("*.csv"))
RACES = {  # tables that no notebook makes
    "advice-trial": "tests/benchmarks/trial/__main__.py",
    "cost-peers": "tests/benchmarks/peers/__main__.py",
}


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_a_kept_table_reads_as_pandas_reads_it_and_has_a_grid_or_a_race(path):
    rows, table = results.kept(path.stem), pandas.read_csv(path)
    assert len(rows) == len(table) > 0
    for column in table.columns:
        as_read = str if table[column].dtype == "str" else lambda cell: cell  # numbers and text in one column are text
        ours = [np.nan if row[column] is None else as_read(row[column]) for row in rows]
        pandas.testing.assert_series_equal(pandas.Series(ours, name=column), table[column], check_dtype=False)
    assert (ROOT / RACES.get(path.stem, f"notebooks/sweeps/{path.stem}.yml")).exists()
    assert all("+changes" not in row["run_revision"] for row in rows)
    assert f"{len({row['run_name'] for row in rows})} runs on cpu" in results.origin(rows)


def test_agreement_counts_and_compares_the_rows_that_are_in_both():
    rows = [{"figure": "19", "seed": seed, "kappa": 10.0 + seed} for seed in range(3)]
    table = [{"figure": 19, "seed": 0, "kappa": 10.0}, {"figure": 19, "seed": 1.0, "kappa": 11.000005}]
    table += [{"figure": 19, "seed": 2, "kappa": None}, {"figure": "20", "seed": 2, "kappa": 3.0}]
    said = "2 of 3 values are in the kept table too; {} of these agree to six digits"
    assert results.agreement(rows, table, "figure", "seed") == said.format(2)
    table[1]["kappa"] = 11.00002
    assert results.agreement(rows, table, "figure", "seed") == said.format(1)


T = np.arange(1.0, 4.0)
ALT = 'Curves that "fall" < 1.'
FRAMES = {str(rate): [Curve(T, 10.0**-rate * T, "one"), Curve(T, np.full(3, rate), "two", "--")] for rate in (1, 2, 5)}


def test_every_frame_is_in_the_page_and_a_picture_for_where_scripts_are_off():
    moving = Moving(FRAMES, "rate", ALT, xlabel="step", ylabel="loss", yscale="log", ylim=(1e-2, 1e3))
    bundle, again = moving._repr_mimebundle_(), moving._repr_mimebundle_()
    figure, html = bundle["application/vnd.plotly.v1+json"], bundle["text/html"]
    frames = {frame["name"]: frame["data"] for frame in figure["frames"]}
    assert [frames[rate][0]["y"] for rate in "125"] == [[0.1, 0.2, 0.3], [0.01, 0.02, 0.03], [1e-5, 2e-5, 3e-5]]
    steps = figure["layout"]["sliders"][0]["steps"]
    assert [(step["label"], step["args"][0]) for step in steps] == [("1", ["1"]), ("2", ["2"]), ("5", ["5"])]
    assert figure["layout"]["yaxis"]["range"] == pytest.approx([-2, 3])
    assert html == again["text/html"]
    page = BeautifulSoup(html, "html.parser")
    assert page.select_one("div.moving")["aria-label"] == page.select_one("img.still")["alt"] == ALT
    kind, picture = page.select_one("img.still")["src"].split(",")
    assert kind == "data:image/png;base64" and b64decode(picture).startswith(b"\x89PNG")
    assert [script["src"] for script in page.select("script[src]")] == [SCRIPT]
    assert len(html) < 100_000


def test_a_process_looks_here_first_but_not_in_the_folder_of_an_installed_package(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/another", str(ROOT)]))
    assert checkout.environment() == {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "book"), "/another"])}
    monkeypatch.setattr(checkout, "ROOT", tmp_path)
    assert checkout.environment() == {}  # its folder must not come before Python's own


MODULES = [each.name for each in pkgutil.walk_packages(gnbook.__path__, "gnbook.") if "__main__" not in each.name]


@pytest.mark.parametrize("name", sorted(MODULES))
def test_the_examples_in_the_docstrings_of_a_module_run(name):
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert failed == 0
