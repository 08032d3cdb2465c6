"""Training a pruned network as in the public code behind figure 1 of Zhao 2024, and its condition number on the way.

Training goes on where it was interrupted, and ends with the same bits as if it had not been.
"""

import copy
from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from gnbook.pruning import jacobians
from gnbook.pruning.jacobians import Masks
from gnbook.pruning.masks import magnitude_masks, masks_of_every_tensor
from gnbook.pruning.recipes import Recipe
from gnbook.shared.epochs import digest_of, read_checkpoint, write_checkpoint
from gnbook.shared.training import Loss

Rows = list[dict[str, object]]

STATISTICS = ("batch", "running")
NORMALISED = nn.modules.batchnorm._BatchNorm


def pruned(recipe: Recipe, pruning: str, fraction: float, seed: int, device: str = "cpu") -> tuple[nn.Module, Masks]:
    """Return a network with zeros, in single precision, and the masks that say where they are.

    Pruned is the fraction of "every tensor", as in the public code, of "weights", as usual, or of "scales and biases",
    what only the former takes.
    """
    torch.manual_seed(seed)
    network = recipe.network().to(device)
    weights = magnitude_masks(network, fraction)
    every = masks_of_every_tensor(network, fraction)
    others = {name: mask for name, mask in every.items() if name not in weights}
    masks = {"every tensor": every, "weights": weights, "scales and biases": others}[pruning]
    with torch.no_grad():
        for name, kept in masks.items():
            network.get_parameter(name).mul_(kept)
    return network, masks


def condition_numbers(
    network: nn.Module,
    masks: Masks,
    batches: Sequence[Float[Tensor, "b c s s"]],
    precision: torch.dtype = torch.float32,
    statistics: Sequence[str] = STATISTICS,
) -> Rows:
    """Return rows on the Gauss-Newton matrix of a network on batches, one for each kind of statistics and of columns.

    Statistics are "batch", whose Jacobian has the `precision`, "running", or "none" where there is no BatchNorm;
    columns are "all", with what the public code would take for condition number and rank, or "kept".
    """
    if any(isinstance(module, NORMALISED) for module in network.modules()):
        kinds = {kind: precision if kind == "batch" else torch.float64 for kind in statistics}
    else:
        kinds = {"none": torch.float64}
    rows: Rows = []
    for kind, dtype in kinds.items():
        if kind == "batch":
            found = jacobians.with_statistics_of_batches(network, masks, batches, dtype)
        else:
            found = jacobians.with_running_statistics(network, masks, batches)
        kappa, rank = jacobians.by_the_public_rule(found["all"] * sum(map(len, batches)))
        for columns in ("all", "kept"):
            row = {"statistics": kind, "columns": columns} | jacobians.ends(found[columns], dtype)._asdict()
            rows.append(row | ({"kappa_public": kappa, "rank_public": rank} if columns == "all" else {}))
    return rows


def run(
    recipe: Recipe,
    network: nn.Module,
    masks: Masks,
    x: Float[Tensor, "n c s s"],
    targets: Float[Tensor, "n k"],
    *,
    seed: int,
    epochs: int,
    batch_size: int,
    measured: int,
    measured_at: Sequence[int],
    every: int,
    loss: Loss = nn.functional.cross_entropy,
    factor: float = 1.0,
    precision: torch.dtype = torch.float32,
    statistics: Sequence[str] = STATISTICS,
    checkpoint: Path | None = None,
) -> Rows:
    """Train a pruned network, in place, and measure it.

    The masks act on the gradients, as in the public code; a pruned entry stays zero, since neither momentum nor weight
    decay moves it. Condition numbers are taken on the first `measured` images, augmented once and for all, after the
    epochs `measured_at`; 0 is before training. Rows have the epoch, and either the loss, the mean over the batches as
    they are met in training, or what :func:`condition_numbers` says. They end with the last loss that is finite.
    """
    optimizer, schedule = recipe.steps(network.parameters(), factor)
    kept = [masks.get(name) for name, _ in network.named_parameters()]
    settings = {
        "network": digest_of(*network.state_dict().values(), *masks.values()),
        "data": digest_of(x, targets),
        "images": [getattr(recipe.augment, "__name__", "none"), recipe.scale.__name__],
        "optimizer": repr(optimizer),
        "schedule": sorted(map(str, schedule.state_dict().items())),
        "loss": loss.__name__,
        "numbers": [seed, batch_size, measured, list(measured_at), every, str(precision)],
        "statistics": list(statistics),
    }
    generator = Generator().manual_seed(seed)
    rows: Rows = []
    done = -1

    def batch(some: Int[Tensor, " b"], generator: Generator) -> Float[Tensor, "b c s s"]:
        images = recipe.augment(x[some], generator) if recipe.augment else x[some]
        return recipe.scale(images, x)

    def passed(network: nn.Module, learn: bool, generator: Generator) -> float:
        """Pass through all images once, and return the mean loss of the batches."""
        losses = []
        for some in torch.randperm(len(x), generator=generator).split(batch_size):
            with torch.set_grad_enabled(learn):
                losses.append(loss(network(batch(some, generator)), targets[some]))
            if learn:
                optimizer.zero_grad()
                losses[-1].backward()
                for parameter, mask in zip(network.parameters(), kept, strict=True):
                    if mask is not None:
                        parameter.grad.mul_(mask)
                optimizer.step()
        return torch.stack(losses).mean().item()

    batches = batch(torch.arange(measured), Generator().manual_seed(seed)).split(batch_size)
    moving = {"network": network, "optimizer": optimizer, "schedule": schedule}
    if checkpoint is not None and checkpoint.exists():
        saved = read_checkpoint(checkpoint, settings)
        rows, done = saved["rows"], saved["epoch"]
        for name, part in moving.items():
            part.load_state_dict(saved[name])
        generator.set_state(saved["generator"])
    for epoch in range(done + 1, epochs + 1):
        if epoch:
            value = passed(network, True, generator)
            schedule.step()
        else:
            value = passed(copy.deepcopy(network), False, Generator().manual_seed(seed))
        if not torch.isfinite(torch.tensor(value)):
            break
        if epoch % every == 0:
            rows.append({"epoch": epoch, "loss": value})
        if epoch in measured_at:
            rows += [
                {"epoch": epoch} | row for row in condition_numbers(network, masks, batches, precision, statistics)
            ]
        if checkpoint is not None and (epoch % every == 0 or epoch in measured_at):
            content = {"settings": settings, "epoch": epoch, "rows": rows, "generator": generator.get_state()}
            write_checkpoint(checkpoint, content | {name: part.state_dict() for name, part in moving.items()})
    return rows
