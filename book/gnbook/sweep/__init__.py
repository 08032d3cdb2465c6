"""Run a notebook over a grid of parameters, on this machine or a cluster; whatever dies, no finished run is lost.

The import needs no package that gnlib does not need, so that a chapter can call `record` anywhere.
"""

from gnbook.sweep.driver import run as run
from gnbook.sweep.rows import record as record
