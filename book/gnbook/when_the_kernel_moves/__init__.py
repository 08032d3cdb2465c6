"""The chapter on networks whose kernel moves."""
