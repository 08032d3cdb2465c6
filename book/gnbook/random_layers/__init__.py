"""The chapter on random layers."""
