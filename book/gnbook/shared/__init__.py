"""Models and experiments of more than one chapter."""
