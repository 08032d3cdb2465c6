"""What the chapters of the book need beyond the core: a room for each, and `shared` for what several need."""
