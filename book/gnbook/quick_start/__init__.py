"""The quick start: three small networks, the advice that a report gives for them, and trainings before and after."""
