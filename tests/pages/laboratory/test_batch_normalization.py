"""The findings of "Batch normalisation" and of its further experiments, by their tables."""

from gnbook import results

from tests.pages.pages import named, span

FIRST, SECOND = "laboratory/batch-normalization", "laboratory/batch-normalization-further"
NEAR = 0.8, 1.25  # of a ratio of numbers that are about the same

# How images and hidden units are prepared.
RAW, CENTRED, STANDARDISED = ((images, "nothing") for images in ("raw", "centred", "standardised"))
SUBTRACTED, DIVIDED, WHOLE, BOTH = (
    *(("raw", how) for how in ("mean subtracted", "divided by deviation", "BN")),
    ("standardised", "BN"),
)


def networks():
    """By preparation: κ with Kaiming's weights and its range over three networks, and with torch's default."""
    found = named(SECOND, "convolutional network, 20 colour images", 2)
    return {key: ([row[0], *span(row[1])], [row[2], *span(row[3])]) for key, row in found.items()}


def kappas():
    return {key: (kaiming[0], default[0]) for key, (kaiming, default) in networks().items()}


def trainings(rate="first"):
    """By preparation: steps with Kaiming's weights and with torch's, at a rate."""
    some = slice(0, 2) if rate == "first" else slice(2, 4)
    return {key: tuple(row[some]) for key, row in named(FIRST, "steps of gradient descent", 2).items()}


def near(found, other):
    return all(NEAR[0] < a / b < NEAR[1] for a, b in zip(found, other, strict=True))


def fewer(change, way):
    """How many times fewer steps torch's default takes with a change: `first` or `best` rate, or `linear` model."""
    counts = named(FIRST, "torch's default: steps to the goal", 2) if way == "linear" else trainings(way)
    return counts[RAW][1] / counts[change][1]


def improvements():
    kept = {(row["network"], row["width"], row["seed"]): row["kappa"] for row in results.kept("batch-normalization")}
    return [value / kept["with BN", *key[1:]] for key, value in kept.items() if key[0] == "without BN"]


def test_normalising_lowers_kappa_of_every_network():
    assert min(improvements()) > 1


def test_kaiming_weights_gain_by_subtracting_and_the_default_by_dividing():
    raw, centred, standardised, divided = (kappas()[key][1] for key in (RAW, CENTRED, STANDARDISED, DIVIDED))
    assert raw / centred < 2 and 25 < raw / divided < 35 and standardised < raw / 10
    by_image = networks()["less mean image", "nothing"]
    assert near([some[0] for some in networks()[CENTRED]], [some[0] for some in by_image])
    assert networks()[RAW][1][1] < networks()[CENTRED][1][1]  # one of three gets worse


def test_steps_go_with_kappa_in_a_column_and_not_between():
    steps, of = trainings(), kappas()
    assert len(steps) == 7
    for which in range(2):
        assert near([found[WHOLE][which] for found in (steps, of)], [found[BOTH][which] for found in (steps, of)])
    assert of[DIVIDED][1] < of[STANDARDISED][1]
    assert steps[DIVIDED][1] == max(default for _, default in steps.values())
