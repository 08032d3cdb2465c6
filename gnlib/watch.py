"""Ask again while a network trains: what its Gauss-Newton matrix says every so many steps, to whatever keeps a log."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from gnlib.gauss_newton import GaussNewton
from gnlib.jacobian.inputs import Inputs
from gnlib.refused import Refused

Log = Callable[[dict[str, float], int], object]


class Watch:
    """Measure a network every so many steps of its training, on the same data, by products with vectors.

    It is called with the module and the number of the step, in any loop; :meth:`for_transformers` and
    :meth:`for_lightning` make callbacks of it. The module is left as it is.

    Parameters
    ----------
    x, y, loss
        as for :class:`gnlib.GaussNewton`; a fixed batch, so that what changes is the network
    every
        so many steps
    log
        called with the numbers and the step, such as `lambda found, step: wandb.log(found, step=step)`
    goal
        share of the loss that the effective condition number is on its way to
    options
        of :class:`gnlib.GaussNewton`, `dtype=torch.float32` if it is not given

    Raises
    ------
    ValueError
        A number of steps that is none; and when it is called, what :class:`gnlib.GaussNewton` refuses.

    Examples
    --------
    >>> import torch
    >>> torch.manual_seed(0)
    <torch._C.Generator object at ...>
    >>> network, x, y = torch.nn.Linear(3, 2), torch.randn(20, 3), torch.randn(20, 2)
    >>> watch = Watch(x, y, every=2, log=lambda found, step: print(step, sorted(found)))
    >>> for step in range(3):
    ...     _ = watch(network, step)
    0 ['effective_condition_number', 'largest_eigenvalue', 'stable_rate']
    2 ['effective_condition_number', 'largest_eigenvalue', 'stable_rate']
    """

    def __init__(
        self,
        x: Inputs,
        y: Any = None,
        loss: str | Callable[[Tensor, Any], Tensor] = "mse",
        *,
        every: int = 100,
        log: Log = print,
        goal: float = 0.1,
        **options: Any,
    ) -> None:
        if not isinstance(every, int) or every < 1:
            raise Refused("bad-option", f"every is {every!r}; a whole number of at least 1 was expected.")
        self._asked: tuple[Any, ...] = (x, y, loss)
        self._every, self._log, self._goal = every, log, goal
        self._options = {"dtype": torch.float32, **options}

    def __call__(self, module: nn.Module, step: int) -> dict[str, float] | None:
        """Measure, and log, if it is the turn of this step."""
        if step % self._every:
            return None
        g = GaussNewton(module, *self._asked, **self._options)
        largest = g.largest_eigenvalue().value
        found = {"largest_eigenvalue": largest, "stable_rate": 2 / largest}
        if self._asked[1] is not None:
            found["effective_condition_number"] = g.effective_condition_number(self._goal)
        self._log(found, step)
        return found

    def for_transformers(self) -> Any:
        """Return a callback of the `Trainer` of Hugging Face's transformers."""
        from transformers import TrainerCallback

        watch = self

        class Callback(TrainerCallback):  # type: ignore[misc]
            def on_step_begin(self, args: Any, state: Any, control: Any, model: nn.Module, **_: Any) -> None:
                watch(model, state.global_step)

        return Callback()

    def for_lightning(self) -> Any:
        """Return a callback of the `Trainer` of Lightning, which logs to the loggers of the trainer as well."""
        from lightning.pytorch import Callback as Base

        watch = self

        class Callback(Base):  # type: ignore[misc]
            def on_train_batch_start(self, trainer: Any, module: nn.Module, batch: Any, batch_idx: int) -> None:
                found = watch(module, trainer.global_step)
                for logger in trainer.loggers if found else ():
                    logger.log_metrics(found, trainer.global_step)

        return Callback()
