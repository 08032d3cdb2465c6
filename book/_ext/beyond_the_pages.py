"""A Sphinx extension for what stands beside the pages: one for addresses that lead nowhere, and previews of links.

Services that preview a link read a title, a few words and a picture from the head of the page. The picture needs a
whole address, and so do links on a page that is shown in any folder: these wait for `html_baseurl`.
"""

from html import escape

from docutils import nodes

PICTURE = "_static/picture.png"
NOTHING_HERE = """<h1>There is no such page</h1>
<p>Perhaps it was renamed. <a href="{home}">The first page</a> and <a href="{search}">the search</a> lead to all
others.</p>"""


def first_paragraph(doctree):
    """Return the first paragraph of a page, as one line."""
    paragraph = next(iter(doctree.findall(nodes.paragraph)), None)
    return "" if paragraph is None else paragraph.astext().replace("\n", " ")


def add_preview(app, pagename, _, context, doctree):
    """Put the tags of the Open Graph protocol into the head of each page of the book."""
    if doctree is None:
        return
    tags = {"type": "article", "site_name": app.config.html_title, "title": context["title"]}
    tags["description"] = first_paragraph(doctree)
    if base := app.config.html_baseurl:
        tags |= {"url": f"{base.rstrip('/')}/{pagename}.html", "image": f"{base.rstrip('/')}/{PICTURE}"}
    lines = (f'<meta property="og:{name}" content="{escape(str(text))}"/>' for name, text in tags.items())
    context["metatags"] = "\n".join([context.get("metatags", ""), *lines])


def nowhere(app):
    """Add the page that a server shows for addresses of none."""
    base = app.config.html_baseurl.rstrip("/") + "/" if app.config.html_baseurl else ""
    body = NOTHING_HERE.format(home=f"{base}index.html", search=f"{base}search.html")
    yield "404", {"title": "There is no such page", "body": body}, "page.html"


def setup(app):
    """Wait for each page, and for those that have no source."""
    app.connect("html-page-context", add_preview)
    app.connect("html-collect-pages", nowhere)
    return {"parallel_read_safe": True}
