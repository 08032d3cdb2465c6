"""Other ways to the Gram matrix of a network's Jacobian, each as one would write it; all hold the Jacobian whole."""

import torch
from torch import nn


def loop(module, x):
    """Return the Gram matrix by one call of `autograd.grad` for each output of each sample, and one product."""
    parameters = list(module.parameters())
    rows = len(x) * module(x[:1]).shape[1]
    jacobian = x.new_empty(rows, sum(p.numel() for p in parameters))
    row = iter(jacobian)
    for sample in x.split(1):
        for output in module(sample).flatten():
            gradients = torch.autograd.grad(output, parameters, retain_graph=True)
            torch.cat([g.flatten() for g in gradients], out=next(row))
    return product(jacobian) / len(x)


def product(jacobian):
    """Return the Gram matrix where the Jacobian is there already."""
    return jacobian @ jacobian.T


def backward_passes(module, x, many):
    """Put the batch through the network once, and so many cotangents back to its parameters."""
    y = module(x)
    for _ in range(many):
        torch.autograd.grad(y, list(module.parameters()), torch.ones_like(y), retain_graph=True)


def hooks(module, x):
    """Return the Gram matrix of a perceptron by hooks: inputs and gradients of each layer, and their products."""
    inputs, outputs = [], []
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    handles = [
        layer.register_forward_hook(lambda _, x, z: inputs.append(x[0]) or outputs.append(z)) for layer in layers
    ]
    y = module(x)
    for handle in handles:
        handle.remove()
    n, k = y.shape
    gradients = [z.new_empty(n, k, z.shape[1]) for z in outputs]
    for a in range(k):
        for of_layer, g in zip(gradients, torch.autograd.grad(y[:, a].sum(), outputs, retain_graph=True), strict=True):
            of_layer[:, a] = g
    gram = x.new_zeros(n, k, n, k)
    for layer, f, g in zip(layers, inputs, gradients, strict=True):
        f, g = f.detach(), g.flatten(0, 1)
        gram.addcmul_((g @ g.T).view(gram.shape), (f @ f.T + (layer.bias is not None))[:, None, :, None])
    return gram.view(n * k, n * k) / n


class Recurrent(nn.Module):
    """A long short-term memory that reads an image row by row, and a linear layer."""

    def __init__(self, size=28, width=64, outputs=10):
        super().__init__()
        self.cells, self.head = nn.LSTM(size, width, batch_first=True), nn.Linear(width, outputs)

    def forward(self, x):
        return self.head(self.cells(x.unflatten(1, (-1, self.cells.input_size)))[0][:, -1])


class Looped(nn.Module):
    """The same network as a loop of linear layers."""

    def __init__(self, module):
        super().__init__()
        weights = dict(module.cells.named_parameters())
        self.size, self.width, self.head = module.cells.input_size, module.cells.hidden_size, module.head
        self.input, self.hidden = nn.Linear(self.size, 4 * self.width), nn.Linear(self.width, 4 * self.width)
        for layer, kind in ((self.input, "ih"), (self.hidden, "hh")):
            layer.weight, layer.bias = weights[f"weight_{kind}_l0"], weights[f"bias_{kind}_l0"]

    def forward(self, x):
        h = c = x.new_zeros(len(x), self.width)
        for now in x.unflatten(1, (-1, self.size)).unbind(1):
            i, f, g, o = (self.input(now) + self.hidden(h)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return self.head(h)
