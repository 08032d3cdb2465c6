"""What the room takes for granted of torch beyond its documentation: a failure here names the part to look at."""

import warnings

import pytest
import torch
from torch.nn import functional

from gnlib.jacobian.intercept import Interceptor
from gnlib.jacobian.structure import structure_of
from gnlib.jacobian.trial import network_of
from tests.gnlib.jacobian.cases import COUPLED, Tokens, attention, draw, tokens, vector


def test_the_layers_of_attention_are_seen():
    """`record._opened` replaces `has_torch_function`, which the body of attention asks before anything else."""
    names = functional.multi_head_attention_forward.__code__.co_names
    assert "has_torch_function" in names and "linear" in names, f"torch {torch.__version__} writes attention otherwise"
    for make, data in ((attention, vector(4, 5)), (Tokens, tokens)):
        network = network_of(*draw(make, data, 3))
        assert set(structure_of(network).uses) == set(network.parameters)


def states(net):
    module = [{k: id(v) for k, v in d.items()} for m in net.modules() for d in (vars(m), m._parameters, m._buffers)]
    process = torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    kernels = torch.backends.mha.get_fastpath_enabled(), torch.backends.cuda.flash_sdp_enabled()
    return module, process, kernels, warnings.filters[:], torch.get_rng_state().tolist()


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("raised", [None, KeyError])
def test_a_template_restores_the_module_and_the_process(gradients, raised):
    net, x = draw(*COUPLED["batch norm 2d"], 4)
    net.register_full_backward_hook(lambda *_: None)
    network = network_of(net, x, mode="eval")
    net.train()
    with torch.set_grad_enabled(gradients):
        before = states(net)
        try:
            with network.as_template():
                assert torch.get_default_dtype() == torch.float64 and torch.is_grad_enabled() == gradients
                assert not torch.backends.mha.get_fastpath_enabled() and not torch.backends.cuda.flash_sdp_enabled()
                assert not net.training and not net._backward_hooks
                assert network(network.parameters, network.x).dtype == torch.float64
                net.left_behind, net[0].weight = torch.rand(3), None
                if raised:
                    raise raised
        except KeyError:
            pass
        assert states(net) == before


def test_an_interceptor_sees_functions_methods_and_calls_under_vmap():
    names = []

    class Names(Interceptor):
        def call(self, function, args, kwargs):
            names.append(function.__name__)
            return function(*args, **kwargs)

    with Names():
        torch.vmap(lambda x: functional.linear(x, torch.ones(2, 3)).float().sum())(torch.ones(4, 3))
    assert {"linear", "float", "sum"} <= {*names}
