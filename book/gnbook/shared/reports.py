"""Some lines of a report, printed as the whole of it is."""

from gnlib.diagnosis.report import Report
from gnlib.text import as_page


def lines_of(report: Report, *names: str) -> str:
    """Return the lines of these names as text, in the order of the report."""
    return as_page([line for line in report.lines() if line.name in names])
