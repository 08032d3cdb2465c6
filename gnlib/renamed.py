"""Functions that are methods of :class:`gnlib.GaussNewton` now, for one release."""

import warnings
from collections.abc import Callable
from typing import Any

from gnlib.gauss_newton import GaussNewton


def _method(call: str, loss: str = "mse") -> Callable[..., Any]:
    def function(module: Any, x: Any, y: Any = None, loss: Any = loss, **options: Any) -> Any:
        own = {name: options.pop(name) for name in ("output", "mode", "memory", "optimizer") if name in options}
        warnings.warn(f"Call gnlib.GaussNewton(module, x, ...).{call}(...) instead.", DeprecationWarning, stacklevel=2)
        return getattr(GaussNewton(module, x, y, loss, **own), call)(**options)

    function.__doc__ = f"Call :meth:`gnlib.GaussNewton.{call}` instead."
    return function


by_layer, culprits, cost = _method("by_layer"), _method("culprits"), _method("cost")
eigenvalues, forecast, largest_stable_rate = _method("eigenvalues"), _method("forecast"), _method("stable_rate")
gauss_newton_gram, gauss_newton_operator = _method("gram"), _method("operator")
loss_gram = _method("loss_gram", loss="cross_entropy")
