"""The outputs of a module as a checked function of its parameters, and their gradients."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.overrides import TorchFunctionMode

from gnlib.checks import as_float64

FEW = 2  # samples on which the function is tried: enough to see whether one depends on another
AGREE = 1e-8  # relative difference of outputs above which they are not the same
REPAIR = "the weights or the data are too large, or of a sign that the network cannot take."


class Network:
    """The outputs of a module on data, as a function of its parameters in double precision.

    The module itself serves as a template only: it is called with other tensors in place of its own, and everything
    that a forward pass leaves behind in it is undone.

    Attributes
    ----------
    x
        the data, in double precision unless they are integers
    parameters
        the parameters that require a gradient, by name, each once, in the order in which the module registered them
    outputs
        number k of outputs of a sample
    coupled
        whether the outputs of a sample depend on the other samples of the batch
    vmapped
        whether samples can be differentiated together; otherwise it takes one backward pass for each
    copied
        bytes of the copies in double precision
    bytes_per_sample
        memory of a forward and a backward pass, for each sample
    """

    def __init__(
        self, module: nn.Module, x: Tensor, output: Callable[..., Tensor] | None = None, mode: str | None = None
    ) -> None:
        if not isinstance(module, nn.Module):
            raise TypeError(f"module is of type {type(module).__name__}; pass a torch.nn.Module.")
        if mode not in ("eval", "train", None):
            raise ValueError(f"mode is {mode!r}; it must be 'eval', 'train' or None.")
        self._module, self._output, self._mode = module, output, mode
        named = dict(module.named_parameters())
        devices = {p.device for p in named.values()}
        if isinstance(x, Tensor) and devices and x.device not in devices:
            raise ValueError(f"x is on {x.device} but the module on {devices.pop()}; move one of them.")
        self.x = _as_batch(x)
        double = {name: as_float64(p.detach(), f"The parameter {name}") for name, p in named.items()}
        self.parameters = {name: p for name, p in double.items() if named[name].requires_grad}
        if not self.parameters:
            raise ValueError("module has no parameter that requires a gradient; there is nothing to differentiate by.")
        self._frozen = {name: p for name, p in double.items() if not named[name].requires_grad}
        self._buffers = {
            name: b.to(torch.float64) if b.is_floating_point() else b for name, b in module.named_buffers()
        }
        copies = [(double[name], p) for name, p in named.items()] + [(self.x, x)]
        self.copied = sum(8 * d.numel() for d, original in copies if d.data_ptr() != original.data_ptr())
        self.copied += 2 * sum(b.nbytes for b in self._buffers.values())
        with torch.no_grad(), self.as_template():
            self._check_modes()
            self._try()

    @contextmanager
    def as_template(self) -> Iterator[None]:
        """Have the module compute in the mode and the precision asked for, then leave everything as it was found."""
        found = [(m, dict(vars(m)), dict(m._parameters), dict(m._buffers)) for m in self._module.modules()]
        dtype, fast = torch.get_default_dtype(), torch.backends.mha.get_fastpath_enabled()
        device = self.x.device
        forked = torch.random.fork_rng([] if device.type == "cpu" else [device], device_type=device.type)
        # fused attention has no rule for vmap, and constants made in a forward pass are of the default precision
        with forked, sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is a performance drop")  # a kernel without a rule, one by one
            torch.backends.mha.set_fastpath_enabled(False)
            torch.set_default_dtype(torch.float64)
            try:
                if self._mode is not None:
                    self._module.train(self._mode == "train")
                yield
            finally:
                torch.set_default_dtype(dtype)
                torch.backends.mha.set_fastpath_enabled(fast)
                # a pruned weight, say, is an attribute set by each forward pass, and functional_call does not restore
                # the parameters of a module that is reachable under two names
                for m, attributes, parameters, buffers in found:
                    for kept, was in ((vars(m), attributes), (m._parameters, parameters), (m._buffers, buffers)):
                        kept.clear()
                        kept.update(was)

    def __call__(self, parameters: dict[str, Tensor], x: Tensor) -> Float[Tensor, "n k"]:
        """Return the outputs on the samples `x` with these in place of some of the parameters."""
        return _as_outputs(self._forward(parameters, x), len(x))

    def _forward(self, parameters: dict[str, Tensor], x: Tensor) -> object:
        buffers = {name: b.clone() for name, b in self._buffers.items()}  # a forward pass may update them
        tensors = {**self._frozen, **self.parameters, **parameters, **buffers}
        result = torch.func.functional_call(self._module, tensors, x)
        return result if self._output is None else self._output(result)

    def gradients(
        self, columns: dict[str, slice], batch: int
    ) -> Iterator[tuple[slice, int, Float[Tensor, "*batch columns"]]]:
        """Yield gradients with respect to slices of flattened parameters, for `batch` samples together.

        Each comes with the samples that it belongs to and the number of the output. If the samples are coupled, there
        is one sample, the batch, with `n * k` outputs.
        """
        primals = {name: self.parameters[name] for name in columns}

        def pull(x: Tensor) -> tuple[Tensor, Iterator[Tensor]]:
            y, vjp = torch.func.vjp(lambda p: self(p, x), primals)
            return y, (one_row(vjp, y, a) for a in range(y.numel()))

        def one_row(vjp: Callable, y: Tensor, a: int) -> Tensor:
            cotangent = torch.zeros(y.numel(), dtype=y.dtype, device=y.device)
            cotangent[a] = 1
            (gradient,) = vjp(cotangent.view(y.shape))
            return torch.cat([gradient[name].flatten()[part] for name, part in columns.items()])

        def pull_one(x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
            y, rows = pull(x[None])
            return y, tuple(rows)

        for start in range(0, 1 if self.coupled else len(self.x), batch):
            samples = slice(start, start + batch)
            if self.coupled:
                y, rows = pull(self.x)
            else:
                y, rows = torch.vmap(pull_one)(self.x[samples]) if self.vmapped else pull(self.x[samples])
            if not torch.isfinite(y).all():
                where = "" if self.coupled else f" from sample {start} on"
                raise ValueError(f"The outputs have NaN or infinite entries{where}; {REPAIR}")
            for a, row in enumerate(rows):
                yield samples, a, row

    def _check_modes(self) -> None:
        """Refuse random functions and guesses."""
        dropout, learning, self.coupled = [], [], False
        for name, m in self._module.named_modules():
            described = f"{name or 'module'} ({type(m).__name__})"
            p = m.p if isinstance(m, _DropoutNd) else getattr(m, "dropout", 0.0)  # attention and RNNs hold a number
            if m.training and isinstance(p, int | float) and p > 0:
                dropout.append(described)
            if isinstance(m, _BatchNorm):
                self.coupled |= m.training or m.running_mean is None
                learning += [described] * m.training
        if self._mode is None and dropout + learning:
            raise ValueError(
                f"{(dropout + learning)[0]} is in training mode; say which function is meant: mode='eval' (running "
                "statistics, no dropout) or mode='train' (statistics of the batch)."
            )
        if dropout:
            raise ValueError(
                f"{dropout[0]} drops out in training mode, and a random function has no Jacobian; pass mode='eval', or "
                "set its probability to 0."
            )

    def _try(self) -> None:
        """Call the function on a few samples, to learn what it is like and whether it can be differentiated."""
        few = self.x[:FEW]
        leaves = {name: p.detach().requires_grad_() for name, p in self.parameters.items()}
        footprint = _Footprint(leaves.values())
        saving = torch.autograd.graph.saved_tensors_hooks(footprint.save, lambda tensor: tensor)
        try:
            with torch.enable_grad(), footprint, saving:
                result = self._forward(leaves, few)
        except Exception as error:
            raise ValueError(
                f"module fails on the first {len(few)} samples of x, in double precision: {error} (Check the shape of "
                "x, and that tensors made in a forward pass take the dtype and the device of its input.)"
            ) from error
        y = _as_outputs(result, len(few))
        if not y.requires_grad:
            raise ValueError(
                "The outputs do not depend on the parameters in a way that can be differentiated; do not detach them, "
                "nor compute them under torch.no_grad()."
            )
        y = y.detach()
        if not torch.isfinite(y).all():
            raise ValueError(f"The outputs have NaN or infinite entries in the first {len(few)} samples; {REPAIR}")
        if not _agree(self({}, few), y):
            raise ValueError("The outputs change from call to call: a random function has no Jacobian; fix its noise.")
        if not self.coupled and not _agree(torch.cat([self({}, one) for one in few.split(1)]), y):
            if self._mode != "train":
                raise ValueError(
                    "The outputs of a sample depend on the other samples of the batch. If the first axis of x does not "
                    "count samples, transpose it; if this is meant, pass mode='train'."
                )
            self.coupled = True
        self.outputs = y.shape[1]
        self.bytes_per_sample = footprint.bytes / len(few)
        self.vmapped = not self.coupled and self._can_vmap()

    def _can_vmap(self) -> bool:
        def first_row(x: Tensor) -> dict[str, Tensor]:
            y, vjp = torch.func.vjp(lambda p: self(p, x[None]), self.parameters)
            return vjp(torch.ones_like(y))[0]

        try:
            torch.vmap(first_row)(self.x[:1])
        except Exception:  # in-place operations, control flow that depends on data, kernels without a rule: many types
            return False
        return True


class _Footprint(TorchFunctionMode):
    """Memory of a backward pass through what is computed in this context.

    It takes the tensors that autograd saves, and the unfolded input of a convolution, which no tensor shows: on a CPU,
    convolutions in double precision are matrix products.
    """

    def __init__(self, leaves: Iterable[Tensor]) -> None:
        super().__init__()
        self._saved, self._unfolded = {}, 0
        self._leaves = {leaf.untyped_storage().data_ptr() for leaf in leaves}

    @property
    def bytes(self) -> int:
        """Bytes seen so far."""
        return sum(self._saved.values()) + self._unfolded

    def save(self, tensor: Tensor) -> Tensor:
        """Take note of a tensor that autograd saves."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._leaves:
            self._saved[storage.data_ptr()] = min(storage.nbytes(), tensor.nbytes)
        return tensor

    def __torch_function__(
        self, function: Callable, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Call a function of torch, and see whether it is a convolution."""
        result = function(*args, **(kwargs or {}))
        if getattr(function, "__name__", "").startswith("conv") and len(args) > 1:
            x, weight = args[:2]
            images = max(x.numel() // x.shape[1], result.numel() // result.shape[1])
            self._unfolded = max(self._unfolded, 8 * images * weight[0].numel())
        return result


def _as_outputs(y: object, n: int) -> Float[Tensor, "n k"]:
    """Return what a forward pass gave if it is the outputs of n samples, or say what is wrong with it."""
    if not isinstance(y, Tensor) or y.ndim != 2 or len(y) != n or y.shape[1] == 0:
        got = f"shape {tuple(y.shape)}" if isinstance(y, Tensor) else f"type {type(y).__name__}"
        raise ValueError(
            f"The outputs of {n} samples are of {got}; a tensor of shape ({n}, k) was expected. Pass output=, a "
            "function that makes it of what the module returns, such as lambda y: y.flatten(1)."
        )
    if y.dtype != torch.float64:
        raise ValueError(
            f"The outputs are of {y.dtype} although all parameters are in double precision; an argmax has no gradient, "
            "and a cast in the forward pass loses digits. Pass output= to return what comes before it."
        )
    return y


def _as_batch(x: Tensor) -> Tensor:
    """Return data in double precision, or as they are if they are integers, such as the numbers of tokens."""
    whole = isinstance(x, Tensor) and not x.is_floating_point() and not x.is_complex()
    double = as_float64(x, "x")
    if x.ndim == 0:
        raise ValueError("x has shape (); the first axis of x must count samples.")
    return (x if whole else double).detach()


def _agree(a: Tensor, b: Tensor) -> bool:
    return bool((a - b).abs().max() <= AGREE * b.abs().max())
