"""The chapter on what a condition number costs."""
