"""Lines of a report are those of its page."""

import torch
from gnbook.shared.reports import lines_of

import gnlib


def test_lines_are_those_of_the_report():
    torch.manual_seed(0)
    x, y = torch.randn(6, 3) + 5, torch.randn(6, 2)
    report = gnlib.report(torch.nn.Linear(3, 2), x, y)
    names = {line.name for line in report.lines()}
    assert lines_of(report, *names) == str(report).partition("\n\n")[0]
    chosen = lines_of(report, "rate", "try")
    assert [line.split()[0] for line in chosen.splitlines() if line[0] != " "][-1] == "rate"
    assert chosen.count("\ntry") + chosen.startswith("try") == max(len(report.suggestions), 1)
