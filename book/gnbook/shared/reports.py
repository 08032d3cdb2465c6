"""Some lines of a report, printed as the whole of it is."""

from gnlib.text import Page, as_page


def lines_of(report: Page, *names: str) -> str:
    """Return the lines of these names as text, in the order of the report."""
    return as_page([line for line in report.lines() if line.name in names])
