"""Deep networks that are not linear: the rooms of one chapter."""
