"""What is refused, by a short code that stays when sentences change; the page on refusals explains each."""

from typing import Any

CODES = {
    "bad-option": "an option has a value that it cannot have",
    "empty": "there is nothing to measure on",
    "low-precision": "a part of the function is computed in a lower precision",
    "mode-unclear": "the module is another function in training than in evaluation",
    "module-changed": "the parameters are not those that a matrix was made for",
    "module-fails": "the module raises an error",
    "needs-matrix": "products with vectors do not tell this",
    "no-curvature": "the loss has a slope and no second derivative",
    "no-gradient": "the outputs do not depend on the parameters in a way that can be differentiated",
    "no-parameters": "there is no parameter to differentiate by",
    "no-residual": "the loss is at its goal already",
    "no-targets": "the targets are missing",
    "not-comparable": "two results, or several draws, have nothing to compare",
    "not-converged": "an iteration took all its steps",
    "not-convex": "the loss has a negative second derivative by the outputs",
    "not-finite": "numbers are NaN or infinite",
    "not-resolved": "the smallest eigenvalue is lost in rounding",
    "out-of-range": "numbers leave the range of double precision",
    "random-data": "the data change from pass to pass, or can be read once",
    "random-module": "the outputs change from call to call",
    "rate-too-large": "a learning rate is not positive, or too large for the answer",
    "samples-coupled": "the outputs of a sample depend on other samples",
    "too-little-memory": "more memory is needed than is allowed",
    "too-long": "a result has too many numbers for a file of text",
    "two-devices": "the data and the module are on different devices",
    "unreadable-file": "a file holds no result that this version can read",
    "wrong-loss": "a loss is no function of outputs and targets that can be used",
    "wrong-matrix": "a matrix is no symmetric positive semi-definite one",
    "wrong-optimizer": "an optimiser cannot be followed",
    "wrong-outputs": "the outputs do not have a row for each sample",
    "wrong-shape": "a tensor has another shape than was expected",
    "wrong-targets": "the targets do not fit the outputs",
    "zero-matrix": "all eigenvalues are zero",
}


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
