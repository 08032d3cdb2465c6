"""The chapter on piecewise linear maps."""
