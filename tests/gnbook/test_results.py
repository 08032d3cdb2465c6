"""The tables of sweeps that the book keeps."""

from pathlib import Path

import numpy as np
import pandas
import pytest
from gnbook import results

ROOT = Path(__file__).parents[2]
TABLES = sorted((ROOT / "book" / "results").glob("*.csv"))
RACES = {"cost-peers": "tests/benchmarks/peers/__main__.py"}  # tables that no notebook makes


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
