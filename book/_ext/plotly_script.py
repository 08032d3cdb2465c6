"""A Sphinx extension that lays the script of plotly beside the pages, once for all figures that move."""

import shutil
from importlib.resources import files
from pathlib import Path


def copy_script(app, error):
    """Copy it from the package of plotly, to where pages look for it, when they are written."""
    if error is None and app.builder.format == "html":
        script = files("plotly") / "package_data" / "plotly.min.js"
        for folder in ("", "notebooks"):  # pages of the laboratory lie one folder deeper
            place = Path(app.outdir) / folder / "_static"
            place.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(script, place / script.name)


def setup(app):
    """Wait for the end of the build."""
    app.connect("build-finished", copy_script)
    return {"parallel_read_safe": True}
