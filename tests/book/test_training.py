"""What the page on training says of noise, and its tables."""

from tests.book.pages import prose, table


def test_what_full_batches_and_minibatches_do_to_the_extreme_eigenvalues():
    text, rows = prose("notebooks/training"), table("training", "unit images, full batches and minibatches")
    (_, start, *_, large, _, small, _), last = [[float(word) for word in rows[i].split()] for i in (0, -1)]
    _, _, squares, large_full, large_mini, small_full, small_mini = last
    assert f"take it from {small:.1f} to {small_full:.1f} and the largest from {large:.2f} to {large_full:.2f};" in text
    assert f"the smallest on to {small_mini:.1f} in 800 epochs, the largest only to {large_mini:.1f}." in text
    assert abs(small_mini / small_full - 1 / 2) < 0.05 and abs(small_mini / small - 1 / 3) < 0.02
    assert "squared weights shrink by 3 %" in text and round(100 * (1 - squares / start)) == 3
