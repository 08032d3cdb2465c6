"""A Sphinx extension that lists the fields of a named tuple once, as its docstring does."""


def skip_field(app, what, name, obj, skip, options):
    """Skip what Python documents as `Alias for field number ...`."""
    return True if type(obj).__name__ == "_tuplegetter" else None


def setup(app):
    """Connect to autodoc."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-skip-member", skip_field)
    return {"parallel_read_safe": True}
