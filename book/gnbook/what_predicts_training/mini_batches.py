"""Three small trainings on mini-batches, many runs of each side by side."""

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

import gnlib

Training = tuple[nn.Module, Tensor, Tensor]


def perceptron(n: int) -> Training:
    """Return a perceptron of two hidden layers, MNIST less the mean image, and whether a digit is above four."""
    images, digits = gnlib.load("mnist", n, stride=2)
    return _network(images.shape[1], nn.ReLU), images - images.mean(0), _signs(digits > 4)


def cnn(n: int) -> Training:
    """Return a network of two convolutions, CIFAR-10 at a quarter of the resolution, and whether it shows an animal."""
    images, labels = gnlib.load("cifar10", n, stride=4)
    images = (images - images.mean()) / images.std()
    convolutions = nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten()
    torch.manual_seed(0)
    network = nn.Sequential(*convolutions, nn.Linear(32, 1)).double()
    return network, images.view(n, 3, 8, 8), _signs((labels > 1) & (labels < 8))


def table(n: int) -> Training:
    """Return a perceptron with tanh, eight correlated columns, one of them with long tails, and a product of some."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 8, generator=generator, dtype=torch.float64)
    x[:, 1] += x[:, 0]
    x[:, 7] = x[:, 7].exp()
    x = (x - x.mean(0)) / x.std(0)
    noise = torch.randn(n, 1, generator=generator, dtype=torch.float64)
    return _network(8, nn.Tanh), x, torch.sin(x[:, :1]) + x[:, 2:3] * x[:, 3:4] / 2 + 0.3 * noise


TRAININGS: dict[str, Callable[[int], Training]] = {"perceptron": perceptron, "CNN": cnn, "table": table}


def losses_of_runs(
    training: Training, batch: int, rates: Sequence[float], *, runs: int = 20, shuffled: bool = False, every: int = 10
) -> Float[Tensor, "runs looks"]:
    """Return half the mean squared error on all samples before step 1 and after each few, of so many runs.

    All of them begin at the same weights. Each step draws a batch anew, or takes the next of a shuffled epoch.
    """
    net, x, y = training
    weights = {name: p.detach().expand(runs, *p.shape).clone() for name, p in net.named_parameters()}

    def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return (torch.func.functional_call(net, weights, (x,)) - y).square().sum() / (2 * len(x))

    gradient = torch.vmap(torch.func.grad(loss))
    look, found = torch.vmap(loss, (0, None, None)), []
    draws = _draws(len(x), batch, runs, shuffled)
    for step, rate in enumerate(rates):
        if step % every == 0:
            found.append(look(weights, x, y))
        own = next(draws)
        for name, g in gradient(weights, x[own], y[own]).items():
            weights[name] -= rate * g
    return torch.stack([*found, look(weights, x, y)], 1).nan_to_num(torch.inf)


def _draws(n: int, batch: int, runs: int, shuffled: bool) -> Iterator[Tensor]:
    """Yield the samples of a batch for each run, step after step."""
    generator = torch.Generator().manual_seed(0)
    while True:
        orders = torch.rand(runs, n, generator=generator).argsort(1)
        for start in range(0, n - batch + 1, batch):
            yield orders[:, start : start + batch]
            if not shuffled:
                break


def _network(inputs: int, activation: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Linear(inputs, 32), activation(), nn.Linear(32, 32), activation(), nn.Linear(32, 1)
    return nn.Sequential(*layers).double()


def _signs(yes: Tensor) -> Float[Tensor, "n 1"]:
    return (2 * yes.double() - 1)[:, None]
