"""Tables, as text and as a notebook shows them."""

import pytest
from gnbook.tables import Table

COLUMNS = {"network": "<", "kappa": ".3g", "rank": "d"}
ROWS = [["A", 12.345, 7], ["B & C", None, 1234], ["D", "> 1e+09", 3]]


def test_names_begin_on_the_left_and_numbers_end_on_the_right():
    assert repr(Table(COLUMNS, ROWS, "two <= three")) == (
        "two <= three\n"  #
        "network    kappa  rank\n"
        "A           12.3     7\n"
        "B & C          -  1234\n"
        "D        > 1e+09     3"
    )


def test_a_notebook_shows_the_same_cells():
    from bs4 import BeautifulSoup

    shown = BeautifulSoup(Table(COLUMNS, ROWS, "two <= three")._repr_html_(), "html.parser")
    assert shown.caption.text == "two <= three"
    cells = [[cell.text for cell in row.select("th, td")] for row in shown.select("tr")]
    assert cells == [["network", "kappa", "rank"], ["A", "12.3", "7"], ["B & C", "-", "1234"], ["D", "> 1e+09", "3"]]
    assert [cell["style"] for cell in shown.select("tr")[1].select("td")] == [
        "text-align: left", "text-align: right", "text-align: right",
    ]  # fmt: skip


def test_a_table_without_rows_or_a_caption_is_its_head():
    table = Table(COLUMNS, [])
    assert repr(table) == "network  kappa  rank"
    assert "caption" not in table._repr_html_()


@pytest.mark.bad_input
@pytest.mark.parametrize("row", [["A", 1.0], ["A", 1.0, 2, 3]])
def test_a_row_of_another_length_is_told(row):
    with pytest.raises(ValueError, match=rf"has {len(row)} cells, but there are 3 columns \(network, kappa, rank\)"):
        Table(COLUMNS, [row])
