"""The versions and the revision that results come from."""

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from gnlib import __version__


def versions() -> dict[str, str]:
    """Return the versions of the packages that compute the numbers."""
    return {
        "python": platform.python_version(),
        "gnlib": __version__,
        **{name: version(name) for name in ("torch", "numpy", "scipy")},
    }


def git_revision(path: Path) -> str | None:
    """Return the revision of the repository that a file is in, with "+changes" if not all of it is committed."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(path.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        revision = git("rev-parse", "--short=12", "HEAD")
        changed = git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return None
    return revision + ("+changes" if changed else "")
