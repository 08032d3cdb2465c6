"""What the public notebooks behind figures 14 and 15 print of their spectra, and two ratios of it."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

EPOCHS = (0, 20, 40, 60, 80, 99)
SHARES = (0.0, 0.2, 0.4, 0.6, 0.8)
# As printed by small_resnet20.ipynb and small_resnet32.ipynb of jydzhao/GN_eigenspectrum at commit 0af321a: both ends
# of the spectrum of J J^T for 1,000 images, not divided by their number, in single precision. A line for each share.
LARGEST = {
    "ResNet20": (
        (2.202430e05, 4.393573e04, 6.154643e04, 8.060548e04, 9.535863e04, 9.379543e04),
        (1.677723e05, 7.381180e04, 6.616649e04, 1.131149e05, 1.221265e05, 1.194833e05),
        (2.702908e05, 9.856641e04, 9.488135e04, 1.671005e05, 1.273479e05, 1.548251e05),
        (2.819912e06, 1.510100e07, 2.343930e07, 5.246414e07, 8.878695e07, 2.632423e08),
        (2.429422e06, 8.295156e08, 6.273110e08, 9.485978e08, 1.061307e09, 1.255507e09),
    ),
    "ResNet32": (
        (9.081451e05, 5.421620e04, 5.680521e04, 7.623944e04, 9.053786e04, 7.086727e04),
        (6.304946e05, 8.028517e04, 4.463775e04, 7.440042e04, 9.681164e04, 9.681697e04),
        (1.701686e06, 8.589673e04, 6.545802e04, 1.180286e05, 1.088250e05, 1.496127e05),
        (1.406562e06, 1.188728e05, 1.552120e05, 2.179749e05, 3.444976e05, 6.825810e05),
        (4.411828e06, 5.054847e08, 1.169430e09, 7.550568e08, 1.455651e09, 1.679412e09),
    ),
}
SMALLEST = {  # of the same spectrum; for a ResNet32 without 80 % the smallest above the notebook's threshold
    "ResNet20": (
        (20.8673, -0.0025, 0.0090, 0.0175, 0.0361, 0.0370),
        (8.4253, 0.0186, 0.1187, 0.7575, 1.1202, 1.7832),
        (6.2335, 0.0252, 0.1858, 0.5003, 0.9927, 1.6333),
        (1.6328, -3.5018, -4.1203, -14.3127, -13.3175, -69.2352),
        (-0.0338, -190.9243, -108.2058, -160.3261, -167.9776, -187.9456),
    ),
    "ResNet32": (
        (9.481104e01, 1.064661e-02, 4.474375e-02, 7.097663e-02, 6.551908e-02, 8.540001e-02),
        (4.209131e01, 4.374069e-03, 1.649432e-01, 3.856157e-01, 6.907640e-01, 1.219077e00),
        (2.673296e01, 6.850988e-03, 1.369160e-01, 4.371929e-01, 8.676901e-01, 2.133975e00),
        (5.277874e00, 2.990842e-03, 7.839449e-02, 2.560419e-01, 6.348122e-01, 7.507725e-01),
        (1.823498e-07, 1.156144e-07, 1.446534e-07, 1.559404e-07, 1.256335e-07, 1.190908e-07),
    ),
}


class Ratios(NamedTuple):
    """Condition numbers of one network, with a share of every tensor pruned, along its training.

    `drawn` is over the smallest eigenvalue of the whole network before training, `own` over that of the same spectrum:
    not a number where single precision does not resolve it.
    """

    drawn: Float[np.ndarray, " epochs"]
    own: Float[np.ndarray, " epochs"]


def ratios(network: str, share: float) -> Ratios:
    """Return the condition numbers that follow from the printed spectra, at `EPOCHS`.

    An eigenvalue below the largest times the spacing of single precision is rounding.
    """
    line = SHARES.index(share)
    largest, smallest = np.array(LARGEST[network][line]), np.array(SMALLEST[network][line])
    resolved = smallest > np.finfo(np.float32).eps * largest
    return Ratios(largest / SMALLEST[network][0][0], largest / np.where(resolved, smallest, np.nan))
