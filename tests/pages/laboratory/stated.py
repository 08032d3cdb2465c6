"""Whether a page still states numbers, whatever the words between them."""

import re

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def states(text, numbers, *values):
    """Return whether a text has each number of a sentence.

    Examples
    --------
    >>> states("from 1,801 to 112", "{:,.0f} and then {}", 1801.2, 112), states("11 steps", "1 step")
    (True, False)
    """
    sentence = numbers.format(*values) if values else numbers
    found = set(NUMBER.findall(text))
    return {number.strip(",") for number in NUMBER.findall(sentence)} <= {number.strip(",") for number in found}
