"""From a spectrum to a decision: where a condition number comes from, what training will do, and what to change."""
