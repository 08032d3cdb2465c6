"""A notebook over a grid of parameters: on this machine or a cluster, with nothing lost when something dies.

Importing this needs nothing that gnlib itself does not need, so that a chapter can call `record` anywhere.
"""

from gnbook.sweep.driver import run as run
from gnbook.sweep.rows import record as record
