"""The chapter on the Gauss-Newton matrix."""
