"""What is to be said of data before any change is tried."""

from collections.abc import Iterator

from torch import Tensor

from gnlib.advice.candidates import Setting
from gnlib.advice.wrappers import Scaled, is_within
from gnlib.text import Line, listed

APART = 3.0  # times the spread, by which targets and outputs are named


def remarks_on(setting: Setting, in_vain: bool = False) -> Iterator[Line]:
    """Yield a line on targets of another scale than the outputs, on what is constant, and on classes without samples.

    `in_vain`: standardised targets were tried, and gained nothing.

    Examples
    --------
    >>> import torch
    >>> x = torch.tensor([[0.0], [1.0]])
    >>> print(*remarks_on(Setting(torch.nn.Linear(1, 1), [{0: x}], torch.full((2, 1), 3.0), "mse")))
    Line(name='targets', value='all are 3', meaning='a bias fits them; no step tells anything of the network')
    """
    y, f = setting.y, setting.result
    if setting.has_numbers:
        yield from _of_numbers(setting, y.detach().double(), in_vain)
    elif isinstance(y, Tensor) and y.ndim == 1 and isinstance(f, Tensor) and f.ndim == 2 and setting.loss != "mse":
        missing = sorted({*range(f.shape[1])} - {*y.tolist()})
        if len(missing) == f.shape[1] - 1:
            yield Line("targets", f"all are {int(y[0])}", "a bias fits them; no step tells anything of the network")
        elif missing:
            count = f"{len(missing)} of {f.shape[1]} classes have no sample here"
            yield Line("targets", count, f"nothing is known of {listed(missing)}; take a batch with all of them")
    for key, x in setting.inputs.items():
        flat = x.flatten(0, -2)
        constant = (flat == flat[0]).all(0).nonzero().flatten().tolist()
        if constant and len(flat) > 1:
            name = "the inputs" if len(setting.inputs) == 1 else f"input {key!r}"
            which = f"{len(constant)} of {flat.shape[1]} features of {name} are constant"
            yield Line("inputs", which, f"{listed(constant)}: they are centred and not divided")


def _of_numbers(setting: Setting, y: Tensor, in_vain: bool) -> Iterator[Line]:
    if y.numel() > 1 and bool((y == y.flatten()[0]).all()):
        meaning = "a bias fits them; no step tells anything of the network"
        yield Line("targets", f"all are {float(y.flatten()[0]):.3g}", meaning)
        return
    if setting.fixed_targets or is_within(setting.module, Scaled):
        return
    f = setting.outputs.detach().double()
    mean, spread, of, own = (float(t) for t in (y.mean(), y.std(correction=0), f.mean(), f.std(correction=0)))
    standard = abs(mean) <= 1 and 1 / APART <= spread <= APART
    if standard or (abs(mean - of) <= APART * own and own / APART <= spread <= APART * own):
        return
    meaning = "standardise them: training has to bridge that first"
    if in_vain:
        meaning = "training has to bridge that first; standardising them was tried, and saves no fifth of the steps"
    yield Line("targets", f"{mean:.3g} +- {spread:.3g}, the outputs {of:.3g} +- {own:.3g}", meaning)
