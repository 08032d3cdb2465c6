"""A Sphinx extension that says at the foot of each page which version of the library built it."""

import gnlib


def add_version(app, config):
    """Put it before what stands there."""
    options = config.html_theme_options
    options["extra_footer"] = f"Version {gnlib.__version__}. {options['extra_footer']}"


def setup(app):
    """Wait until the configuration has been read."""
    app.connect("config-inited", add_version)
    return {"parallel_read_safe": True}
