"""A Sphinx extension that lays the script of plotly beside the pages, once for all figures that move."""

import shutil
from importlib.resources import files
from pathlib import Path


def copy_script(app, error):
    """Copy it from the package of plotly when the pages are written."""
    if error is None and app.builder.format == "html":
        script = files("plotly") / "package_data" / "plotly.min.js"
        shutil.copyfile(script, Path(app.outdir) / "_static" / script.name)


def setup(app):
    """Wait for the end of the build."""
    app.connect("build-finished", copy_script)
    return {"parallel_read_safe": True}
