"""The chapter on deep linear networks."""
