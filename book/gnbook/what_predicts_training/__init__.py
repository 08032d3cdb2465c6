"""The chapter on what can be known of training beforehand."""
