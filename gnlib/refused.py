"""What is refused, by a short code that stays when sentences change; the page on refusals explains each."""

from typing import Any

CODES = (
    "bad-option empty low-precision mode-unclear module-changed module-fails needs-matrix no-curvature "
    "no-gradient no-parameters no-residual no-targets not-comparable not-converged not-convex not-finite "
    "not-resolved out-of-range random-data random-module rate-too-large samples-coupled too-little-memory "
    "too-long two-devices unreadable-file wrong-loss wrong-matrix wrong-optimizer wrong-outputs wrong-shape "
    "wrong-targets zero-matrix"
).split()


class Refused(ValueError):
    """Something that cannot be answered, with the sentence that says why and what to do.

    Attributes
    ----------
    code
        one of those in `CODES`, for programs that act on it

    Examples
    --------
    >>> import torch, gnlib
    >>> try:
    ...     gnlib.GaussNewton(torch.nn.Linear(2, 1), torch.ones(3, 2)).waiting()
    ... except gnlib.Refused as refused:
    ...     print(refused.code, "-", refused)
    no-targets - y is missing; the value and the gradient of a loss need targets.
    """

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        """Cross to another process with all attributes, whatever the arguments of a subclass are."""
        return _again, (type(self), self.args, vars(self))


def _again(kind: type[Refused], args: tuple[str, ...], attributes: dict[str, Any]) -> Refused:
    refused = kind.__new__(kind, *args)
    refused.__dict__.update(attributes)
    return refused
