"""The chapter on networks of one's own: networks of all kinds, ways to draw them, and their trainings."""
