"""A Sphinx extension that shows what a search finds in its context, also on a site that is opened from disk.

Sphinx's search fetches each page that it has found, to cite it, and browsers refuse that to a page of file://. So the
text of all pages is laid beside the search page, in a script that answers in place of the network.
"""

import json
from html import escape
from pathlib import Path

from bs4 import BeautifulSoup

SCRIPT = "search-text.js"
ANSWER = """
const fetchPage = window.fetch;
window.fetch = (address, ...rest) =>
  address in pages ? Promise.resolve(new Response(pages[address])) : fetchPage(address, ...rest);
"""


def text_of(page):
    """Return the text of a page, with the sections and the anchors that a search looks for, and nothing else."""
    main = BeautifulSoup(page.read_text(), "html.parser").select_one("[role=main] article")
    for part in main.select("script, style, svg, img, .headerlink"):
        part.decompose()
    return f'<div role="main">{inside(main)}</div>'


def inside(part):
    """Return what a tag holds, without the tags that have no anchor."""
    return "".join(escape(child, quote=False) if isinstance(child, str) else anchored(child) for child in part.children)


def anchored(part):
    """Return a tag with its anchor, or what it holds if it has none."""
    return f'<{part.name} id="{part["id"]}">{inside(part)}</{part.name}>' if part.get("id") else inside(part)


def write_texts(app, error):
    """Write the script when the pages are written."""
    if error is None and app.builder.format == "html":
        site = Path(app.outdir)
        pages = {f"./{name}.html": text_of(site / f"{name}.html") for name in sorted(app.env.found_docs)}
        (site / "_static" / SCRIPT).write_text(f"const pages = {json.dumps(pages)};{ANSWER}")


def load_texts(app, pagename, *_):
    """Load it on the page that needs it."""
    if pagename == "search":
        app.add_js_file(SCRIPT)


def setup(app):
    """Wait for the search page, and for the end of the build."""
    app.connect("html-page-context", load_texts)
    app.connect("build-finished", write_texts)
    return {"parallel_read_safe": True}
