"""Some lines of a report, printed as the whole of it is."""

from gnlib.diagnosis.report import Report
from gnlib.text import as_page


def lines_of(report: Report, *names: str) -> str:
    """Return the lines of these names as text, in the order of the report.

    >>> import gnlib, torch
    >>> x = torch.tensor([[9.0, 1.0], [10.0, 2.0], [11.0, 1.0]])
    >>> print(lines_of(gnlib.report(torch.nn.Linear(2, 1), x), "rank"))
    rank  3 of 3: linearised, the network can fit any targets on these
          samples
    """
    return as_page([line for line in report.lines() if line.name in names])
