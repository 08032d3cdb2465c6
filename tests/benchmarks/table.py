"""Print the measurements that `make bench` left in a file: `python tests/benchmarks/table.py FILE`."""

import json
import sys
from pathlib import Path

COLUMNS = "{:<58}{:>16}{:>18}  {:<45}{:>10}{:>10}{:>9}{:>8}  {}"


def seconds(value):
    return f"{value:.3g} s" if value < 1000 else f"{value:.0f} s"


def gib(value):
    return "" if value is None else f"{value:.2f} GiB"


def beside_its_target(value, target, form):
    """The measurement and the bound that it is to stay below, with the sign that is true."""
    if value is None or target is None:
        return "" if value is None else form(value)
    number, unit = form(value).split()
    return f"{number} {'<' if value < target else '>'} {target} {unit}"


def rows(measurement):
    info, ours = measurement["extra_info"], measurement["stats"]["median"]
    taken = beside_its_target(ours, info.get("target"), seconds)
    memory = beside_its_target(info.get("memory"), info.get("memory_target"), gib)
    first, where = (info["case"], taken, memory), f"{info['device']}, threads: {info['threads']}"
    for i, other in enumerate(info["against"]):
        compared = [other["name"], "", "", "", ""]
        if "seconds" in other:
            target = "" if other["target"] is None else f"{other['target']:.3g}"
            compared[1:] = seconds(other["seconds"]), gib(other.get("memory")), f"{other['seconds'] / ours:.3g}", target
        yield (*([""] * 3 if i else first), *compared, "" if i else where)


print(COLUMNS.format("case", "ours", "peak memory", "alternative", "takes", "memory", "ratio", "target", "where"))
for measurement in json.loads(Path(sys.argv[1]).read_text())["benchmarks"]:
    for row in rows(measurement):
        print(COLUMNS.format(*row).rstrip())
print(
    "Medians of ours, the alternative once or the least of three; memory beyond the weights and the data, of a process"
)
print("of its own; an alternative is left out where its Jacobian would take more than 8 GiB. Targets are bounds of")
print("seconds, of memory, and from below of the ratio of the alternative's time to ours.")
