"""What is unusual about a network, beside its spectrum."""

import math
from collections.abc import Iterator

from torch import Tensor

from gnlib.diagnosis.losses import CrossEntropy
from gnlib.diagnosis.measured import UNITS, Measured
from gnlib.diagnosis.suggestions import fresh_norms

USUAL = 0.25, 3.5  # times 1 / sqrt(inputs), the standard deviation of weights: torch draws 0.6 of it, Kaiming 1.4


def remarks_on(measured: Measured) -> Iterator[tuple[str, str]]:
    """Yield headings, and what they mean."""
    network, module = measured.networks[0], measured.module
    if network.coupled:
        yield "outputs depend on the other samples", "the matrix is that of this batch, normalisation included"
    elif fresh := fresh_norms(module):
        yield f"{len(fresh)} batch normalisations are fresh", "they do nothing yet: pass the batch, or mode='train'"
    for name, layer in module.named_modules():
        weight = getattr(layer, "weight", None)
        if isinstance(layer, UNITS) and isinstance(weight, Tensor) and weight.numel() > 1:
            size = weight.detach().double().square().mean().sqrt().item() * math.sqrt(weight[0].numel())
            if not USUAL[0] <= size <= USUAL[1]:
                yield (
                    f"weights of {name or 'the module'} are {size:.2g} / sqrt(inputs)",
                    "usual are 0.6 (torch) to 1.4 (Kaiming)",
                )
    y = measured.outputs
    if isinstance(measured.loss, CrossEntropy) and y.amin() >= 0 and (y.sum(1) - 1).abs().max() < 1e-6:
        yield "the outputs are probabilities", "cross_entropy takes a softmax of them again: pass what comes before it"
