"""Jacobians, Gram matrices and products of any torch module, layer by layer."""
