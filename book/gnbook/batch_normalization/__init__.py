"""The chapter on batch normalisation."""
