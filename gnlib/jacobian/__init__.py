"""Jacobians, Gram matrices and products of any torch module, layer by layer."""

from gnlib.jacobian.operator import largest_eigenvalue as largest_eigenvalue
