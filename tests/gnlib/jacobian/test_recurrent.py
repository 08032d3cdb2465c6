"""Recurrent layers are differentiated as loops of linear maps, samples together, with the derivatives of autograd."""

import pytest
import torch
from torch import nn

from gnlib.jacobian.structure import structure_of
from gnlib.jacobian.trial import network_of
from tests.gnlib.jacobian.cases import Whole
from tests.gnlib.jacobian.helpers import assert_refused, assert_right, made

N, T, D, H, K = 4, 3, 2, 5, 3
LAYERS = {
    "lstm": (nn.LSTM, {}),
    "lstm, projected, both ways": (nn.LSTM, dict(num_layers=2, bidirectional=True, proj_size=3)),
    "lstm, projected, without bias": (nn.LSTM, dict(proj_size=3, bias=False)),
    "lstm, time first": (nn.LSTM, dict(batch_first=False)),
    "gru, layers": (nn.GRU, dict(num_layers=2)),
    "gru, both ways, without bias": (nn.GRU, dict(bidirectional=True, bias=False)),
    "plain": (nn.RNN, dict(num_layers=2, bidirectional=True)),
    "plain, rectified": (nn.RNN, dict(nonlinearity="relu")),
}
CELLS = {
    "lstm": (nn.LSTMCell, {}),
    "gru": (nn.GRUCell, {}),
    "plain": (nn.RNNCell, {}),
    "plain, rectified": (nn.RNNCell, dict(nonlinearity="relu", bias=False)),
}


def layer(name):
    """All outputs and last states of a layer, from states that depend on the data."""
    kind, options = LAYERS[name]
    options = dict(batch_first=True) | options

    def forward(self, x):
        cells = self.cells
        sizes = [cells.proj_size or H] + [H] * (kind is nn.LSTM)
        passes = cells.num_layers * (1 + cells.bidirectional)
        start = [torch.stack([(1 + i) * x[:, 0, :1].expand(-1, size) for i in range(passes)]) for size in sizes]
        y, end = cells(x if cells.batch_first else x.transpose(0, 1), start[0] if len(start) == 1 else tuple(start))
        ends = [end] if isinstance(end, torch.Tensor) else end
        y = y if cells.batch_first else y.transpose(0, 1)
        return self.head(torch.cat([y.flatten(1), *(e.transpose(0, 1).flatten(1) for e in ends)], 1))

    size = (options.get("proj_size") or H) * (1 + options.get("bidirectional", False))
    depth = options.get("num_layers", 1)
    states = size * depth + (kind is nn.LSTM) * H * depth * (1 + options.get("bidirectional", False))
    return lambda: Whole(forward, cells=kind(D, H, **options), head=nn.Linear(T * size + states, K))


def cell(name):
    kind, options = CELLS[name]

    def forward(self, x):
        h = x.new_ones(len(x), H)
        state = (h, h) if kind is nn.LSTMCell else h
        for step in x.unbind(1):
            state = self.cell(step, state)
        return self.head(torch.cat(state, 1) if kind is nn.LSTMCell else state)

    return lambda: Whole(forward, cell=kind(D, H, **options), head=nn.Linear(H * (1 + (kind is nn.LSTMCell)), K))


NETWORKS = {f"layer, {name}": layer(name) for name in LAYERS} | {f"cell, {name}": cell(name) for name in CELLS}


def sequences():
    return torch.randn(N, T, D, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", NETWORKS)
def test_recurrent_layers_are_loops_of_linear_maps(name):
    net = made(NETWORKS[name])
    network = network_of(net, sequences())
    structure = structure_of(network)
    assert network.vmapped
    assert structure.batched
    assert all(structure.uses[key] for key in network.parameters)
    assert_right(net, sequences())


def test_a_recurrent_layer_before_a_normalisation_of_the_batch():
    def forward(self, x):
        return self.head(self.norm(self.cells(x)[0][:, -1]))

    net = made(
        lambda: Whole(forward, cells=nn.GRU(D, H, batch_first=True), norm=nn.BatchNorm1d(H), head=nn.Linear(H, K))
    )
    assert all(structure_of(network_of(net, sequences(), mode="train")).uses.values())
    assert_right(net, sequences(), mode="train")


def test_packed_sequences():
    def forward(self, x):
        packed = nn.utils.rnn.pack_padded_sequence(x, [T] * len(x), batch_first=True)
        return self.head(self.cells(packed)[1][0][0])

    assert_right(made(lambda: Whole(forward, cells=nn.LSTM(D, H, batch_first=True), head=nn.Linear(H, K))), sequences())


def test_units_that_drop_out_between_layers():
    net = made(layer("gru, layers"))
    net.cells.dropout = 0.5
    assert_refused(net, sequences(), "drops out in training mode", mode="train")
    assert_right(net, sequences(), made(layer("gru, layers")).eval(), mode="eval")
