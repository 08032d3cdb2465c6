"""Images of MNIST and CIFAR-10, most of them half as wide as they are, and networks for them from three libraries."""

from functools import partial

import torch
from torch import Tensor, nn

from gnlib import load
from tests.benchmarks.trial.cases import Case, Data, kaiming, of_library, parted, standardised

CLASSES = "cross_entropy"


def mnist(scale: float = 255.0) -> Data:
    """Digits of 14 by 14 pixels, from 0 to `scale`."""
    x, y = load("mnist", 264, stride=2)
    return parted(scale * x.view(-1, 1, 14, 14).float(), y.long(), shuffled=False)


def cifar(scale: float = 1.0, n: int = 60, stride: int = 2) -> Data:
    """Colour images of 16 by 16 pixels, or 32 by 32 of stride 1, from 0 to `scale`."""
    x, y = load("cifar10", 200 + n, stride=stride)
    side = 32 // stride
    return parted(scale * x.view(-1, 3, side, side).float(), y.long(), n=n, shuffled=False)


def ink() -> Data:
    """Digits, and how many of their pixels are dark."""
    data = mnist(1.0)
    y, held_y = ((x > 0.3).sum((1, 2, 3)).float()[:, None] for x in (data.x, data.held_x))
    return Data(data.x, y, data.held_x, held_y)


def of_channels(data: Data) -> Data:
    return standardised(data, 0, 2, 3)


def lenet() -> nn.Module:
    """The network of LeCun and others (1998), narrower: tanh and mean pooling."""
    body = nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 4), nn.Tanh(), nn.AvgPool2d(2)
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))


def plain(depth: int = 7, width: int = 16) -> nn.Module:
    """Many convolutions one after the other, without normalisation, as VGG has them."""
    layers: list[nn.Module] = []
    for i in range(depth):
        layers += [nn.Conv2d(3 if i == 0 else width, width, 3, padding=1), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if i in (0, 3) else []
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.n, self.m = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.m(self.b(torch.relu(self.n(self.a(x))))))


def resnet() -> nn.Module:
    stem = nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU()
    return kaiming(nn.Sequential(*stem, Block(16), Block(16), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)))


def of_groups() -> nn.Module:
    body = [layer for fan_in in (1, 16) for layer in (nn.Conv2d(fan_in, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.ReLU())]
    return kaiming(nn.Sequential(*body, nn.Flatten(), nn.Linear(256, 10)))


def counting() -> nn.Module:
    body = nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU()
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(256, 1))


TIMM, TORCHVISION = "timm.models", "torchvision.models"
ten = partial(of_library, num_classes=10)
densenet = ten(f"{TORCHVISION}.DenseNet", growth_rate=6, block_config=(2, 2), num_init_features=12)
shufflenet = ten(f"{TORCHVISION}.ShuffleNetV2", [1, 2, 1], [8, 16, 32, 64, 64])
transformer = ten(
    f"{TIMM}.vision_transformer.VisionTransformer", img_size=16, patch_size=4, embed_dim=32, depth=2, num_heads=2
)
convmixer = ten(f"{TIMM}.convmixer.ConvMixer", dim=24, depth=2, kernel_size=5, patch_size=4)
convnext = ten(f"{TIMM}.convnext.ConvNeXt", depths=(1, 1, 1, 1), dims=(8, 16, 24, 32))
CASES = {
    "mnist-lenet": Case("torch", "LeNet", lenet, mnist, CLASSES),
    "cifar-plain": Case("torch", "deep convolutions", plain, cifar, CLASSES),
    "cifar-resnet-prepared": Case("torch", "ResNet", resnet, lambda: of_channels(cifar()), CLASSES, prepared=True),
    "mnist-groups-prepared": Case(
        "torch", "convolutions with GroupNorm", of_groups, lambda: of_channels(mnist()), CLASSES, prepared=True
    ),
    "mnist-ink": Case("torch", "convolutions for a number", counting, ink, "mse"),
    "cifar-densenet-prepared": Case(
        "torchvision", "DenseNet", densenet, lambda: of_channels(cifar(n=30)), CLASSES, prepared=True
    ),
    "cifar-shufflenet": Case("torchvision", "ShuffleNet", shufflenet, lambda: cifar(255.0, n=30), CLASSES),
    "cifar-vit": Case("timm", "vision transformer", transformer, lambda: cifar(255.0), CLASSES),
    "cifar-convmixer-prepared": Case(
        "timm", "ConvMixer", convmixer, lambda: of_channels(cifar()), CLASSES, prepared=True
    ),
    "cifar-convnext": Case("timm", "ConvNeXt", convnext, lambda: cifar(255.0, n=30, stride=1), CLASSES),
}
