"""A Sphinx extension that shows the first picture of a lesson below its question, before the code that draws it.

In the notebook it stands where it is drawn.
"""

import re

from docutils import nodes

LESSON = re.compile(r"notebooks/(?!laboratory/)")


def show_first(app, doctree):
    """Move the first figure of a lesson behind its first paragraph."""
    figure = next(iter(doctree.findall(nodes.figure)), None)
    opening = next(iter(doctree.findall(nodes.paragraph)), None)
    if figure is None or opening is None or not LESSON.match(app.env.docname):
        return
    output = figure.parent
    output.remove(figure)
    if not output.children:
        output.parent.remove(output)
    opening.parent.insert(opening.parent.index(opening) + 1, figure)


def setup(app):
    """Wait for each page that was read."""
    app.connect("doctree-read", show_first)
    return {"parallel_read_safe": True}
