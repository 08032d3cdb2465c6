"""Sequences and sets: the rows of small digits, and generated ones whose rule stands here."""

import math

import torch
from torch import nn

from tests.benchmarks.trial.cases import Case, Data, generator, parted, standardised
from tests.benchmarks.trial.networks.tables import table
from tests.gnlib.networks import Whole, recurrent

CLASSES, NUMBERS = "cross_entropy", "mse"


def rows() -> Data:
    """Digits of scikit-learn as eight rows of eight grey values from 0 to 16."""
    x, y = table("digits")
    return parted(x[:400].view(-1, 8, 8), y[:400])


def weather() -> Data:
    """Sixteen days of temperature, pressure and humidity; the temperature of the day after, in Fahrenheit.

    Temperatures swing by the season and by an autoregression of deviation 4; pressure falls where they rise.
    """
    g, days, n = generator(), 17, 264
    season = 10 * torch.sin(2 * math.pi * torch.rand(n, 1, generator=g))
    noise, state = torch.randn(n, days, generator=g), torch.zeros(n)
    swings = []
    for day in range(days):
        state = 0.8 * state + 2.4 * noise[:, day]
        swings.append(state)
    celsius = 12 + season + torch.stack(swings, 1)
    pressure = 1013 - (celsius - 12) + 5 * torch.randn(n, days, generator=g)
    humidity = (70 - celsius + 10 * torch.randn(n, days, generator=g)).clamp(0, 100)
    return parted(torch.stack([celsius, pressure, humidity], 2)[:, :-1], 32 + 1.8 * celsius[:, -1:])


def vibrations() -> Data:
    """Two channels in millivolts, of a tone of one of four pitches in noise, with an offset of 2,000."""
    g, length = generator(), 64
    label = torch.arange(264) % 4
    phase, time = 2 * math.pi * torch.rand(264, 2, 1, generator=g), torch.arange(length) / length
    tone = torch.sin(2 * math.pi * (3 + 2 * label)[:, None, None] * time + phase)
    return parted(2000 + 400 * tone + 200 * torch.randn(264, 2, length, generator=g), label)


def majorities() -> Data:
    """Sequences of twelve standard normal vectors; the first entry of the one with the largest second, standardised."""
    x = torch.randn(264, 12, 6, generator=generator())
    y = x[torch.arange(264), x[:, :, 1].argmax(1), 0][:, None]
    return standardised(parted(x, y), 0, 1, targets=True)


def clouds() -> Data:
    """Sets of at most ten points in a square of 50, with a mask; 100 times the largest distance from the centre."""
    g = generator()
    x = 50 * torch.rand(264, 10, 2, generator=g)
    mask = (torch.arange(10) < torch.randint(4, 11, (264, 1), generator=g)).float()[:, :, None]
    far = ((x - 25).norm(dim=2, keepdim=True) * mask).amax(1)
    return parted((x, mask), 100 * far)


def prepared_lstm() -> nn.Module:
    """Orthogonal weights from state to state, and an open forget gate, as Jozefowicz and others (2015) advise."""
    net = recurrent(nn.LSTM(8, 24, batch_first=True), 10)
    for gate in net.rnn.weight_hh_l0.data.split(24):
        nn.init.orthogonal_(gate)
    nn.init.constant_(net.rnn.bias_hh_l0.data[24:48], 1.0)
    return net


def dilated() -> nn.Module:
    layers: list[nn.Module] = []
    for fan_in, dilation in ((2, 1), (12, 2), (12, 4), (12, 8)):
        layers += [nn.Conv1d(fan_in, 12, 3, padding=dilation, dilation=dilation), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(12, 4))


def encoder() -> nn.Module:
    """Two layers of torch's transformer, normalised first, and the mean of what they return."""
    ends = dict(first=nn.Linear(6, 24), last=nn.Linear(24, 1))
    layer = nn.TransformerEncoderLayer(24, 2, 48, dropout=0.0, batch_first=True, norm_first=True)
    body = nn.TransformerEncoder(layer, 2, nn.LayerNorm(24), enable_nested_tensor=False)
    return Whole(lambda self, x: self.last(self.body(self.first(x)).mean(1)), **ends, body=body)


def sets() -> nn.Module:
    """The network of Zaheer and others (2017): a perceptron of each point, their sum, another perceptron."""
    each = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
    last = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    return Whole(lambda self, x, mask: self.all((self.each(x) * mask).sum(1)), each=each, all=last)


CASES = {
    "digits-rnn": Case("torch", "tanh RNN", lambda: recurrent(nn.RNN(8, 32, batch_first=True), 10), rows, CLASSES),
    "digits-lstm-prepared": Case(
        *("torch", "LSTM of orthogonal weights", prepared_lstm, lambda: standardised(rows(), 0, 1), CLASSES),
        prepared=True,
    ),
    "weather-lstm": Case("torch", "LSTM", lambda: recurrent(nn.LSTM(3, 24, batch_first=True), 1), weather, NUMBERS),
    "vibrations-dilated": Case("torch", "dilated convolutions", dilated, vibrations, CLASSES),
    "majorities-encoder-prepared": Case("torch", "transformer", encoder, majorities, NUMBERS, prepared=True),
    "clouds-sets": Case("torch", "network of sets", sets, clouds, NUMBERS),
}
