"""The chapter on the transition to linearity."""
