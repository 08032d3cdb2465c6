"""The chapter on residual networks."""
