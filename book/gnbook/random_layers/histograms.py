r"""Many random layers, by the quantities whose histograms the pages show.

Entries have standard deviation :math:`1 / (r \sqrt{8 n})`: r = 2, an eighth of Kaiming's weights, or r = 3.
"""

import math

import numpy as np
import torch
from jaxtyping import Float

from gnbook.random_layers import bounds
from gnbook.random_layers import matrices as rm

BLOCK = 500  # matrices at a time
BINS = {  # of a histogram: from, to, how many
    "Z Gaussian": (-8, 6, 40),
    "Z uniform": (-8, 6, 40),
    "Y": (-6, 5, 40),
    "ratio": (0.2, 1.5, 52),
    "smallest": (0.98, 1.30, 40),
    "largest": (0.99, 1.09, 40),
    "bound": (0.98, 1.16, 40),
    "kappa 2": (1.0, 2.1, 44),
    "kappa 3": (1.0, 1.65, 44),
}


def measure(n: int, count: int, *, seed: int, device: str | torch.device = "cpu") -> dict[str, np.ndarray]:
    r"""Return the values of the histograms, of `count` Gaussian and as many uniform matrices of size n.

    Beside the names of `BINS` there are "kappa W", the condition number without a skip, "norm" and "tau", the norm and
    :math:`\underline\tau` of the layers, and "sharper", the sharper bound over the condition number.
    """
    generator = torch.Generator(device).manual_seed(1000 * seed + n)
    identity = torch.eye(n, dtype=torch.float64, device=device)
    centre, scale = rm.symmetric_scaling(n)[0], n ** (1 / 6)
    mu, q = rm.singular_scaling(n)
    pieces = []
    for start in range(0, count, BLOCK):  # whole blocks, so that the first ones do not depend on the count
        gaussian, uniform = (
            rm.draw(n, BLOCK, law, generator=generator, device=device)[: count - start] for law in rm.LAWS
        )
        k = rm.extremes(gaussian)
        values = {
            "Z Gaussian": (k.tau_largest - centre) * scale,
            "Z uniform": (torch.linalg.eigvalsh(uniform + uniform.mT)[:, -1] - centre) * scale,
            "Y": (k.largest**2 - mu) / q,
            "ratio": k.tau_largest / (2**0.5 * k.largest),
            "kappa W": k.largest / k.smallest,
        }
        for r in (2, 3):
            sigma = 1 / (r * math.sqrt(8 * n))
            singular = torch.linalg.svdvals(sigma * gaussian + identity)
            top, bottom = singular[:, 0], singular[:, -1]
            values[f"kappa {r}"] = kappa = top / bottom
            if r == 2:
                layer = rm.Extremes(*(sigma * value for value in k))
                known = bounds.riedi_lemma_36(layer)
                values |= {
                    "smallest": bottom**2 / (layer.smallest**2 + layer.tau_smallest + 1),
                    "largest": (layer.largest**2 + layer.tau_largest + 1) / top**2,
                    "bound": known.symmetric / kappa,
                    "sharper": known.sharper / kappa,
                    "tau": layer.tau_smallest,
                    "norm": layer.largest,
                }
        pieces.append({name: value.cpu().numpy() for name, value in values.items()})
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def density(values: Float[np.ndarray, " count"], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges of the bins of a histogram, by its name in `BINS`, and its heights."""
    low, high, bins = BINS[name]
    edges = np.linspace(low, high, bins + 1)
    return edges, np.histogram(values, edges)[0] / (len(values) * np.diff(edges))
