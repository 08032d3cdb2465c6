"""A Sphinx extension that leaves comments in the source, such as the anchors of numbers: no page or search has them."""

from docutils import nodes


def leave_out(_, doctree):
    """Take the comments out of a page that has been read."""
    for raw in [*doctree.findall(nodes.raw)]:
        if raw.astext().startswith("<!--"):
            raw.parent.remove(raw)


def setup(app):
    """Wait for each page that is read."""
    app.connect("doctree-read", leave_out)
    return {"parallel_read_safe": True}
