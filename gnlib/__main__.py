"""Run `python -m gnlib report`."""

from gnlib.diagnosis.command import main

main()
