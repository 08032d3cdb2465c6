"""The chapter on leaky ReLUs."""
