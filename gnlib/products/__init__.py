r"""Gauss-Newton matrices by their products with vectors: for networks, data and outputs of any size.

No object here has the size of a matrix. A product with :math:`G = \frac1N J^\top H J` takes, batch by batch, a forward
pass along a direction and a gradient; sums over many entries are in double precision, whatever the passes are in.
"""
