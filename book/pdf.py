"""Print the site as one document: `make pdf` writes _build/book.pdf, and _build/lessons.pdf, the lessons alone.

The articles of all pages, in the order of _toc.yml, become one page of HTML, and Chromium prints it, with contents that
are links and with bookmarks. Names of places get that of their page in front, so that links between pages stay links.
It is printed twice: the first copy tells on which pages the chapters begin, the second has that in its contents.
"""

import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urldefrag, urlsplit

import yaml
from bs4 import BeautifulSoup

import gnlib

ROOT = Path(__file__).resolve().parents[1]
# What is of no use on paper: code that the site folds, buttons, and all of a figure that moves but its still picture.
OF_THE_SCREEN = "details.hide, button, script, a.headerlink, .moving > :not(.still), .tag_install, .toctree-wrapper"
STYLE = """
@page { size: A4; margin: 16mm 15mm 18mm; @bottom-center { content: counter(page); font: 9pt sans-serif; } }
html { font-size: 68%; scroll-padding: 0; }
body { display: block; width: 180mm; }
section.page, section.part { break-before: page; }
section.part + section.page { break-before: avoid; }
h1, h2, h3, h4, h5 { break-after: avoid; break-inside: avoid; }
figure, img, pre, tr, table.dataframe, .cell_output, mjx-container[display] { break-inside: avoid; }
.highlight pre { white-space: pre-wrap; }
.cell_output img { max-width: 80%; max-height: 205mm; width: auto; height: auto; }
mjx-container[display] { overflow: visible; }
div.cell_output .text_html { overflow: visible; }
.title { padding-top: 70mm; text-align: center; }
.title h1 { font-size: 3em; }
.contents ul { list-style: none; } .contents > ul > li { margin-top: 0.6em; font-weight: bold; }
.contents li li { font-weight: normal; line-height: 1.5; }
.contents a { display: flex; justify-content: space-between; }
a { text-decoration: none; }
"""
# A formula wider than its place would be cut: paper does not scroll.
FIT = """
addEventListener("load", () => MathJax.startup?.promise.then(() => {
  for (const formula of document.querySelectorAll("mjx-container[display]"))
    if (formula.scrollWidth > formula.clientWidth) formula.style.zoom = formula.clientWidth / formula.scrollWidth;
}));
"""


def parts(toc):
    """Return the captions of the parts, each with its pages, sections of chapters after their chapter."""

    def flat(chapters):
        return [name for one in chapters for name in (one["file"], *flat(one.get("sections", [])))]

    return [("", [toc["root"]]), *((part["caption"], flat(part["chapters"])) for part in toc["parts"])]


def lessons(toc):
    """Return the contents of the lessons alone, with the landing page."""

    def kept(part):
        return [one for one in part["chapters"] if re.match(r"notebooks/(?!laboratory)", one["file"])]

    parts = [{"caption": part["caption"], "chapters": kept(part)} for part in toc["parts"] if kept(part)]
    return {"root": toc["root"], "parts": parts}


def place(page, name=""):
    """Return the name that a place of a page has in the document."""
    return "--".join(filter(None, (page.replace("/", "-"), name)))


def article(site, page, pages):
    """Return what a page says, ready to stand in one document with the others."""
    soup = BeautifulSoup((site / f"{page}.html").read_text(), "html.parser")
    found = soup.find("article", class_="bd-article")
    for element in found.select(OF_THE_SCREEN):
        element.decompose()
    for details in found.find_all("details"):
        details["open"] = ""
    for element in found.find_all(id=True):
        element["id"] = place(page, element["id"])
    for heading in found.find_all(["h1", "h2", "h3", "h4", "h5"]):
        heading.name = f"h{int(heading.name[1]) + 1}"  # below the part
    for image in found.find_all(src=lambda src: src and not urlsplit(src).scheme):
        image["src"] = posixpath.normpath(posixpath.join(posixpath.dirname(page), image["src"]))
    for link in found.find_all("a", href=lambda href: href and not urlsplit(href).scheme):
        path, name = urldefrag(link["href"])
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)).removesuffix(".html")
        if (target if path else page) in pages:
            link["href"] = f"#{place(target if path else page, name)}"
        else:
            link.unwrap()  # a page of the site alone, such as the index
    found.name, found["class"], found["id"] = "section", "page", place(page)
    return found


def beginnings(printed):
    """Return the page on which each named place stands, if Chromium leaves these parts of a PDF uncompressed."""
    objects = dict(re.findall(rb"^(\d+) 0 obj\s(.*?)^(?:stream|endobj)", printed, re.DOTALL | re.MULTILINE))
    catalog = next((text for text in objects.values() if text.startswith(b"<</Type /Catalog")), b"")
    roots = [re.search(rb"/%s (\d+) 0 R" % name, catalog) for name in (b"Pages", b"Dests")]
    if not all(roots):
        return {}

    def leaves(number):
        kids = re.search(rb"/Kids \[(.*?)\]", objects[number], re.DOTALL)
        return [leaf for kid in re.findall(rb"(\d+) 0 R", kids[1]) for leaf in leaves(kid)] if kids else [number]

    pages, places = (root[1] for root in roots)
    order = {number: count for count, number in enumerate(leaves(pages), 1)}
    named = re.findall(rb"/(\S+) \[(\d+) 0 R", objects[places])
    return {name.decode(): order[number] for name, number in named}


def document(site, toc, config, begins):
    """Return the whole book as one page of HTML, which belongs into the folder of the site.

    Its contents say on which page a chapter `begins`, where that is known.
    """
    book = parts(toc)
    pages = [name for _, names in book for name in names]
    soup = BeautifulSoup((site / f"{toc['root']}.html").read_text(), "html.parser")
    up = posixpath.relpath(".", posixpath.dirname(toc["root"]) or ".") + "/"
    styles = [str(link).replace(up, "") for link in soup.select("head link[rel=stylesheet]")]
    scripts = [str(script).replace(up, "") for script in soup.find_all("script") if "mathjax" in str(script).lower()]
    date = soup.find("meta", attrs={"name": "docbuild:last-update"})["content"]
    articles = {page: article(site, page, pages) for page in pages}
    titles = {page: found.find("h2").get_text() for page, found in articles.items()}
    entries, body = [], []
    for caption, names in book:
        lines = (f"<span>{titles[name]}</span><span>{begins.get(place(name), '')}</span>" for name in names)
        links = (f'<li><a href="#{place(name)}">{line}</a></li>' for name, line in zip(names, lines, strict=True))
        listed = "".join(links)
        entries.append(f"<li>{caption}<ul>{listed}</ul></li>")
        body.append(f'<section class="part"><h1>{caption}</h1></section>' * bool(caption))
        body += [str(articles[name]) for name in names]
    about = f"{config['author']}<br>Version {gnlib.__version__}, {date}<br>{config['html']['extra_footer']}"
    return (
        '<!DOCTYPE html><html lang="en" data-theme="light" data-mode="light"><head><meta charset="utf-8">'
        f"<title>{config['title']}</title>{''.join(styles)}<style>{STYLE}</style>{''.join(scripts)}</head><body>"
        f'<section class="title"><h1>{config["title"]}</h1><p>{about}</p></section>'
        f'<section class="page contents"><h1>Contents</h1><ul>{"".join(entries)}</ul></section>'
        f"{''.join(body)}<script>{FIT}</script></body></html>"
    )


def main(root=ROOT):
    """Print the site, and leave nothing behind but the whole document."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("Chromium, which prints the book, is not installed (Debian, Ubuntu: apt install chromium).")
    site = root / "_build" / "html"
    toc, config = (yaml.safe_load((root / name).read_text()) for name in ("_toc.yml", "_config.yml"))
    if not (site / f"{toc['root']}.html").exists():
        sys.exit(f"There is no site in {site} to print; `make book` builds it.")
    print("Printing takes a few minutes.", flush=True)
    for contents, name in ((lessons(toc), "lessons"), (toc, "book")):
        print(write(chromium, site, contents, config, root / "_build" / f"{name}.pdf"))


def write(chromium, site, toc, config, target):
    """Print the pages of these contents to a file, and return its path."""
    page, unfinished = site / "print.html", target.with_suffix(".part")
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"]
    command += ["--no-pdf-header-footer", "--generate-pdf-document-outline", "--virtual-time-budget=3600000"]
    command += [f"--print-to-pdf={unfinished}", page.as_uri()]
    try:
        begins = {}
        for _ in range(2):
            page.write_text(document(site, toc, config, begins))
            unfinished.unlink(missing_ok=True)
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode or not unfinished.exists():
                sys.exit(f"{chromium} did not print the book. It says: {run.stderr.strip()[-500:]}")
            begins = beginnings(unfinished.read_bytes())
        unfinished.replace(target)
    finally:
        page.unlink(missing_ok=True)
        unfinished.unlink(missing_ok=True)
    return target


if __name__ == "__main__":
    main()
