"""The chapter on the eigenvalue that a training waits for."""
