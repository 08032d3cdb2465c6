"""The chapter on adding the identity."""
