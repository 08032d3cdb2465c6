"""A Sphinx extension that has a search look through what is read, and not through code, outputs and formulas."""

import sphinx.search
from docutils import nodes

SILENT = nodes.literal_block, nodes.math, nodes.math_block


class Prose(sphinx.search.WordCollector):
    """Collect the words of a page, titles apart."""

    def dispatch_visit(self, node):
        """Pass over what is no prose."""
        if isinstance(node, SILENT):
            raise nodes.SkipNode
        super().dispatch_visit(node)


def setup(app):
    """Take the place of the collector of Sphinx."""
    sphinx.search.WordCollector = Prose
    return {"parallel_read_safe": True}
