"""The chapter on pruning."""
