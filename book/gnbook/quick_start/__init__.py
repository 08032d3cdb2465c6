"""The quick start: three small networks, one change of each, and trainings before and after."""
