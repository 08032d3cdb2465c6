"""Print the measurements that `make bench` left in a file: `python tests/benchmarks/table.py FILE`."""

import json
import sys
from pathlib import Path

COLUMNS = "{:<52}{:>9}  {:<38}{:>10}{:>9}{:>8}{:>17}  {}"


def seconds(value):
    return f"{value:.3g} s" if value < 1000 else f"{value:.0f} s"


def rows(measurement):
    info = measurement["extra_info"]
    ours, where = measurement["stats"]["median"], f"{info['device']}, threads: {info['threads']}"
    memory = info.get("memory")
    memory = "" if memory is None else f"{memory:.2f} < {info['memory_target']} GiB"
    for i, other in enumerate(info["against"]):
        ratio, target = f"{other['seconds'] / ours:.3g}", "" if other["target"] is None else f"{other['target']:.3g}"
        compared = other["name"], seconds(other["seconds"]), ratio, target
        yield ("", "", *compared, "", "") if i else (info["case"], seconds(ours), *compared, memory, where)


print(COLUMNS.format("case", "ours", "alternative", "takes", "ratio", "target", "peak memory", "where"))
for measurement in json.loads(Path(sys.argv[1]).read_text())["benchmarks"]:
    for row in rows(measurement):
        print(COLUMNS.format(*row).rstrip())
print("Medians of ours, the alternative once; memory beyond the weights and the data, of a process of its own.")
