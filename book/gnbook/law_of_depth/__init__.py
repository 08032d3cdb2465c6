"""The chapter on the law of depth."""
