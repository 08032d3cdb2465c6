"""To stand between a network and the functions of torch that it calls."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.overrides import TorchFunctionMode


class Watch(TorchFunctionMode):
    """Sees what is called in Python while it is entered: functions of torch, methods and attributes of tensors."""

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return what the function returns, or what is to stand in its place."""
        raise NotImplementedError

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function, as torch asks for."""
        return self.call(function, args, dict(kwargs or {}))
