"""The affine map that a module is around a point, from its Jacobian."""

import pytest
import torch
from gnbook.shared.local_affine import local_affine, local_affine_in_weights
from torch import nn

from tests.gnbook.shared.cases import close
from tests.oracles import normal


class Residual(nn.Module):
    def __init__(self, inplace):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 1, 3, padding=1)
        self.activation = nn.ReLU(inplace=inplace)  # used twice

    def forward(self, x):
        return self.activation(x + self.second(self.activation(self.first(x)))).flatten(1)


@pytest.mark.parametrize("inplace", [False, True])
def test_a_module_of_any_shape(inplace):
    torch.manual_seed(0)
    net, x = Residual(inplace), normal(1, 4, 4, seed=2)
    state = {name: p.clone() for name, p in net.named_parameters()}
    piece = local_affine(net, x)
    double = Residual(False).double()
    double.load_state_dict(net.state_dict())
    (jacobian,) = torch.autograd.functional.jacobian(lambda p: double(p[None])[0], (x,))
    close(piece.matrix, jacobian.flatten(1), jacobian.abs().max())
    assert piece.normals.shape == (3 * 16 + 16, 16) and [len(s) for s in piece.slopes] == [48, 16]
    walls = torch.autograd.functional.jacobian(lambda p: double.first(p[None]).flatten(), x).flatten(1)
    close(piece.normals[:48].abs(), walls.abs(), walls.abs().max())
    assert all(torch.equal(p, state[name]) and p.dtype == torch.float32 for name, p in net.named_parameters())
    assert not any(len(m._forward_pre_hooks) for m in net.modules())


class Hidden(nn.Module):
    def __init__(self, bend):
        super().__init__()
        self.linear, self.bend = nn.Linear(3, 3), bend

    def forward(self, x):
        return self.bend(self.linear(x))


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(self.linear(x))


@pytest.mark.bad_input
@pytest.mark.parametrize("activation", [nn.Tanh(), nn.Softplus(), nn.MaxPool1d(3), nn.Hardtanh(), nn.LayerNorm(3)])
def test_activations_that_are_not_of_the_form_are_refused_by_name(activation):
    with pytest.raises(ValueError, match=f"1 \\({type(activation).__name__}\\) is not known to be affine"):
        local_affine(nn.Sequential(nn.Linear(3, 3), activation), torch.ones(3))


@pytest.mark.bad_input
@pytest.mark.parametrize("bend", [torch.tanh, torch.relu, torch.square])
def test_activations_that_are_hidden_in_the_forward_pass_are_noticed(bend):
    torch.manual_seed(0)
    with pytest.raises(ValueError, match="not affine in the region"):
        local_affine(Hidden(bend), 3 * torch.ones(3))


@pytest.mark.bad_input
def test_a_parameter_that_is_used_twice_is_noticed():
    torch.manual_seed(0)
    net, x = Twice(), torch.ones(2, 3)
    local_affine(net, x[0])
    with pytest.raises(ValueError, match="a parameter is used more than once"):
        local_affine_in_weights(net, "linear.weight", x)
