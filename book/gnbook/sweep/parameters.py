"""Check the values of a case against the parameters of a notebook."""

import difflib
from collections.abc import Mapping

from gnbook.sweep.notebook import Notebook

KINDS = {
    type(None): "nothing",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    list: "a list",
    tuple: "a list",
    dict: "a mapping",
}


def complete(notebook: Notebook, case: Mapping[str, object]) -> dict[str, object]:
    """Return all parameters of a run: the notebook's defaults, replaced by those of the case.

    papermill itself passes an unknown name on with a warning in its log, and any value at all.
    """
    fitted = dict(notebook.defaults)
    for name, value in case.items():
        if name not in notebook.names:
            close = difflib.get_close_matches(name, notebook.names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(notebook.names)}."
            raise ValueError(f"{notebook.path.name} has no parameter {name!r}; {hint}")
        try:
            fitted[name] = _fit(value, notebook.defaults.get(name))
        except TypeError:
            raise ValueError(_complaint(notebook, name, value)) from None
    return fitted


def _fit(value: object, default: object) -> object:
    """Return a value as the type of the default, or raise TypeError."""
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if isinstance(default, list | tuple) and isinstance(value, list | tuple):
        return [_fit(entry, _example(default)) for entry in value]
    if not _is_plain(value) or (default is not None and type(value) is not type(default)):
        raise TypeError
    return value


def _example(default: list | tuple) -> object:
    """Return an entry that stands for all of them, or None if they are of several types."""
    types = {type(entry) for entry in default}
    if types == {int, float}:
        return next(entry for entry in default if isinstance(entry, float))
    return default[0] if len(types) == 1 else None


def _is_plain(value: object) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) for key in value) and all(map(_is_plain, value.values()))
    return value is None or isinstance(value, bool | int | float | str)


def _complaint(notebook: Notebook, name: str, value: object) -> str:
    default = notebook.defaults.get(name)
    expected = f"{KINDS[type(default)]} such as {default!r}" if default is not None else "plain numbers and text"
    hint = ""
    if isinstance(default, list | tuple) and not isinstance(value, list | tuple):
        hint = " To vary a list, give a list of lists."
    elif isinstance(value, str) and isinstance(default, int | float) and _reads_as_number(value):
        hint = " YAML takes a number without a point, such as 1e-3, for text: write 1.0e-3."
    kind = KINDS.get(type(value), f"a {type(value).__name__}")
    return f"{notebook.path.name} takes for {name} {expected}; the grid gives {value!r}, {kind}.{hint}"


def _reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
