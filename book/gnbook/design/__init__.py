"""Initialisations made to train fast: the rooms of one chapter."""
