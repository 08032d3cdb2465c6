"""Training on a few images that measures as it goes, and checkpoints of longer ones.

Stochastic gradient descent with torch's own optimisers. On a CPU the same networks, seeds and number of threads give
the same bits. Several networks of one architecture can be trained side by side, as one network with a further axis:
that saves time where each is small.
"""

import copy
import hashlib
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from gnbook.shared.training import Loss, half_squared_error
from gnlib.files import progress, write

Number = int | float
Rows = list[dict[str, Number]]


class DivergedError(ArithmeticError):
    """The loss is no longer finite."""


def train_epochs(
    networks: Sequence[nn.Module],
    x: Float[Tensor, "n ..."],
    targets: Shaped[Tensor, "n ..."],
    optimizer: Callable[[Iterable[Tensor]], Optimizer],
    *,
    seeds: Sequence[int],
    epochs: int,
    batch_size: int,
    every: int = 1,
    loss: Loss = half_squared_error,
    schedule: Callable[[Optimizer], LRScheduler] | None = None,
    measure: Callable[[nn.Module], Mapping[str, Number]] | None = None,
) -> Rows:
    """Train networks by minibatches, and measure them at epochs 0, `every`, `2 every` and so on.

    An epoch goes through all samples in a random order; its last batch is smaller where `batch_size` does not divide
    their number. Several networks are trained side by side by `torch.vmap`, each in an order of its own, and take the
    paths that they would take alone. The optimiser is made of parameters, as by `partial(torch.optim.SGD, lr=0.1)`;
    where there are several networks it has to treat each entry on its own, as SGD and Adam do. A scheduler of its rates
    takes a step after each epoch. The seeds are of the order of the samples, one for each network. A row for each
    network and measurement has epoch, seed, loss over all samples, and what `measure` says of the network.
    """
    state = _Stack(networks, loss)
    steps = optimizer(list(state.parameters.values()))
    rates = schedule(steps) if schedule else None
    orders = [torch.Generator().manual_seed(seed) for seed in seeds]
    rows: Rows = []

    def stop(losses: Float[Tensor, " s"], epoch: int) -> None:
        if torch.isfinite(losses).all():
            return
        seed = seeds[int((~torch.isfinite(losses)).nonzero()[0])]
        raise DivergedError(
            f"The loss of the network with seed {seed} is not finite in epoch {epoch}; take a smaller rate."
        )

    def record(epoch: int) -> None:
        losses = state.losses_over_all(x, targets)
        stop(losses, epoch)
        state.unstack()
        rows.extend(
            {"epoch": epoch, "seed": seed, "loss": value} | dict(measure(network) if measure else {})
            for network, seed, value in zip(networks, seeds, losses.tolist(), strict=True)
        )

    record(0)
    for epoch in progress(range(1, epochs + 1), "Training", epochs):
        order = torch.stack([torch.randperm(len(x), generator=g, device=g.device) for g in orders])
        for some in order.to(x.device).split(batch_size, dim=1):
            steps.zero_grad()
            losses = state.losses(x[some], targets[some])
            losses.sum().backward()
            steps.step()
        stop(losses.detach(), epoch)
        if rates:
            rates.step()
        if epoch % every == 0:
            record(epoch)
    if epochs % every:  # the steps since the last measurement
        stop(state.losses_over_all(x, targets), epochs)
    state.unstack()
    return rows


class _Stack:
    """Networks of one architecture as one, whose parameters and buffers have a further axis in front."""

    def __init__(self, networks: Sequence[nn.Module], loss: Loss) -> None:
        self.networks, self.loss = networks, loss
        if len(networks) == 1:  # spare it the overhead
            self.parameters, self.buffers = dict(networks[0].named_parameters()), dict(networks[0].named_buffers())
        else:
            self.parameters, self.buffers = stack_module_state(list(networks))
            for module in networks[0].modules():  # what pruning computed from a mask cannot be copied with its graph
                computed = {name: value for name, value in vars(module).items() if isinstance(value, Tensor)}
                vars(module).update({name: value.detach() for name, value in computed.items()})
            self.template = copy.deepcopy(networks[0]).to("meta")

    def losses(self, x: Float[Tensor, "s b ..."], targets: Shaped[Tensor, "s b ..."]) -> Float[Tensor, " s"]:
        """Return the loss of each network on its own batch."""
        if len(self.networks) == 1:
            return self.loss(self.networks[0](x[0]), targets[0])[None]

        def one(parameters: dict, buffers: dict, x: Tensor, targets: Tensor) -> Tensor:
            return self.loss(functional_call(self.template, (parameters, buffers), (x,)), targets)

        return torch.vmap(one)(self.parameters, self.buffers, x, targets)

    @torch.no_grad()
    def losses_over_all(self, x: Float[Tensor, "n ..."], targets: Shaped[Tensor, "n ..."]) -> Float[Tensor, " s"]:
        """Return the loss of each network on all samples, as in training mode but with no trace in the buffers."""
        kept = {name: buffer.clone() for name, buffer in self.buffers.items()}
        many = len(self.networks)
        losses = self.losses(x.expand(many, *x.shape), targets.expand(many, *targets.shape))
        for name, buffer in kept.items():
            self.buffers[name].copy_(buffer)
        return losses

    @torch.no_grad()
    def unstack(self) -> None:
        """Give the networks their weights back."""
        if len(self.networks) == 1:
            return
        stacked = self.parameters | self.buffers
        for i, network in enumerate(self.networks):
            for name, tensor in (*network.named_parameters(), *network.named_buffers()):
                tensor.copy_(stacked[name][i])


def digest_of(*tensors: Tensor) -> str:
    """Return the SHA-256 of tensors: their types, shapes and bytes."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def write_checkpoint(path: Path, content: dict) -> None:
    """Write a checkpoint, whole or not at all."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write(path, buffer.getvalue())


def read_checkpoint(path: Path, settings: dict) -> dict:
    """Return what a checkpoint holds, unless it was written with other settings."""
    saved = torch.load(path, weights_only=True)
    if other := [name for name in settings if saved["settings"].get(name) != settings[name]]:
        raise ValueError(
            f"The checkpoint {path} was written with another {', '.join(other)}; give the same settings to go on, or "
            "another file to begin anew."
        )
    return saved
