"""The chapter on convolution."""
