"""A Sphinx extension for what stands beside the pages: previews of links, a page for addresses of none, a list of all.

Services that preview a link read a title, a few words and a picture from the head of the page. The picture needs a
whole address, and so do links and styles of a page that is shown in any folder, and the list that search engines read:
these wait for `html_baseurl`.
"""

import re
from html import escape
from pathlib import Path

from docutils import nodes

PICTURE = "_static/picture.png"
NOTHING_HERE = """<h1>There is no such page</h1>
<p>Perhaps it was renamed. <a href="index.html">The first page</a> and <a href="search.html">the search</a>
lead to all others.</p>"""


def base_of(app):
    """Return the address of the site with a slash at its end, or nothing while there is none."""
    return app.config.html_baseurl.rstrip("/") + "/" if app.config.html_baseurl else ""


def first_paragraph(doctree):
    """Return the first paragraph of a page, as one line."""
    paragraph = next(iter(doctree.findall(nodes.paragraph)), None)
    return "" if paragraph is None else paragraph.astext().replace("\n", " ")


def add_preview(app, pagename, _, context, doctree):
    """Put the tags of the Open Graph protocol into the head of each page of the book."""
    if doctree is None:
        return
    title = re.sub(r'<span class="section-number">.*?</span>', "", context["title"])
    tags = {"type": "article", "site_name": app.config.html_title, "title": title}
    tags["description"] = first_paragraph(doctree)
    if base := base_of(app):
        tags |= {"url": f"{base}{pagename}.html", "image": f"{base}{PICTURE}"}
    lines = (f'<meta property="og:{name}" content="{escape(str(text))}"/>' for name, text in tags.items())
    context["metatags"] = "\n".join([context.get("metatags", ""), *lines])


def nowhere(app):
    """Add the page that a server shows for addresses of none."""
    base = base_of(app)
    whole = f'<base href="{escape(base)}"/>' if base else ""  # of links and styles, in whatever folder it is shown
    yield "404", {"title": "There is no such page", "body": NOTHING_HERE, "metatags": whole}, "page.html"


def write_sitemap(app, error):
    """List the addresses of all pages for search engines."""
    if error is None and app.builder.format == "html" and (base := base_of(app)):
        lines = "".join(f"<url><loc>{escape(base)}{name}.html</loc></url>\n" for name in sorted(app.env.found_docs))
        sitemap = f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{lines}</urlset>\n'
        (Path(app.outdir) / "sitemap.xml").write_text(sitemap)


def setup(app):
    """Wait for each page, for those that have no source, and for the end of the build."""
    app.connect("html-page-context", add_preview)
    app.connect("html-collect-pages", nowhere)
    app.connect("build-finished", write_sitemap)
    return {"parallel_read_safe": True}
