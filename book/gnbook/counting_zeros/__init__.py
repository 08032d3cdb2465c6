"""The chapter on which eigenvalues are zero."""
