"""The bundled images: the first 1,000 of each training set in balanced order (see README.md)."""
