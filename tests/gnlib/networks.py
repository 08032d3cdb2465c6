"""Networks that several rooms are tried on."""

import torch
from torch import nn


class Whole(nn.Module):
    """A network whose forward pass is written where it is tried, with all the parts that it is given."""

    def __init__(self, forward, /, **parts):
        super().__init__()
        self.written = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *given, **named):
        return self.written(self, *given, **named)


def perceptron(inputs=3, outputs=1, hidden=nn.Tanh, width=8, seed=0):
    """One hidden layer, with the weights of a seed."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, width), hidden(), nn.Linear(width, outputs))


def recurrent(layer, outputs):
    """A recurrent layer, and a linear map of its last state."""
    head = nn.Linear(layer.hidden_size, outputs)
    return Whole(lambda self, x: self.head(self.rnn(x)[0][:, -1]), rnn=layer, head=head)


class TwoInputs(nn.Module):
    """Embedded tokens, of which some are masked, and features beside them."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 3)
        self.head = nn.Linear(5, 2)

    def forward(self, tokens, mask, features):
        assert tokens.dtype == torch.int64 and mask.dtype == torch.bool
        embedded = (self.embedding(tokens) * mask[:, :, None]).sum(1)
        return self.head(torch.cat([embedded, features], 1))


class OneInput(TwoInputs):
    """The same, with all that it takes in one tensor."""

    def forward(self, packed):
        return super().forward(packed[:, :4].long(), packed[:, 4:8] > 0, packed[:, 8:])


def two_inputs(n=5):
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 7, (n, 4), generator=generator)
    mask = torch.rand(n, 4, generator=generator) > 0.3
    return tokens, mask, torch.randn(n, 2, generator=generator)
