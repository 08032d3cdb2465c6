"""The chapter on one hidden layer."""
