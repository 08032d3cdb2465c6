"""Skips for the tests of residual networks."""

from hypothesis import strategies as st

from tests.oracles import with_skip

skips = st.sampled_from([1e-3, 0.1, 0.25, 1 / 3, 0.5, 2**-0.5, 1.0, 2.0, 3.0, 10.0, 1e3])


def shifted(weights, skip):
    return [with_skip(w, skip) for w in weights]
