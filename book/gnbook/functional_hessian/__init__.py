"""The chapter on the other half of the Hessian."""
