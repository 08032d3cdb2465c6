"""The kept tables, by the values of their columns."""

from functools import cache

from gnbook import results


@cache
def table(name):
    return results.kept(name)


def kappas(name, column="kappa", **values):
    found = [row[column] for row in table(name) if values.items() <= row.items()]
    assert found, f"{name} has no rows with {values}"
    return found
