"""Networks of other libraries, as they come, by products with vectors, each beside the whole matrix.

Where a library is not installed its networks are skipped; the nightly workflow installs them.
"""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from gnlib import GaussNewton
from gnlib.laws.waiting import waiting
from tests.gnlib.derivatives import gradients
from tests.gnlib.libraries import load
from tests.gnlib.networks import Whole

pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore")]

N, K = 6, 3
GOAL = 0.3


def normal(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def tokens(*shape):
    return torch.randint(3, 17, shape, generator=torch.Generator().manual_seed(2))


def classes(*shape):
    y = torch.randint(0, shape[-1], shape[:-1], generator=torch.Generator().manual_seed(3))
    y.flatten()[::4] = -100
    return y


def levit():
    """Attention whose biases are kept from call to call in evaluation."""
    make = load("timm").models.levit.Levit
    sizes = dict(embed_dim=(16, 16), key_dim=4, depth=(1, 1), num_heads=(2, 2), attn_ratio=(1, 1), mlp_ratio=(1, 1))
    net = make(img_size=32, num_classes=K, **sizes)
    with torch.no_grad():
        for name, p in net.named_parameters():
            if "attention_biases" in name:
                p.copy_(normal(*p.shape))
    return net, normal(N, 3, 32, 32), {}


def falcon():
    """Rotated positions, a key and a value for all heads, attention beside the perceptron."""
    library = load("transformers")
    sizes = dict(
        vocab_size=17, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, bos_token_id=1, eos_token_id=2
    )
    net = library.FalconForCausalLM(library.FalconConfig(**sizes))
    return net, {"input_ids": tokens(3, 4)}, {"output": lambda o: o.logits}


def whisper():
    """Sounds that are encoded by convolutions, and tokens that look at them; the embedding is the head."""
    library = load("transformers")
    sizes = dict(encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, d_model=8)
    sizes |= dict(encoder_ffn_dim=12, decoder_ffn_dim=12, vocab_size=17, num_mel_bins=4, max_source_positions=4)
    sizes |= dict(max_target_positions=8, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
    net = library.WhisperForConditionalGeneration(library.WhisperConfig(**sizes))
    x = {"input_features": normal(3, 4, 8), "decoder_input_ids": tokens(3, 4)}
    return net, x, {"output": lambda o: o.logits}


def graph(one, two):
    """Two layers on one graph, of which the nodes are the samples, and are asked for together."""
    net = Whole(lambda self, x: self.two(torch.tanh(self.one(x, self.edges)), self.edges), one=one, two=two)
    net.register_buffer("edges", torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 0, 3], [1, 2, 3, 4, 5, 6, 7, 0, 4, 1]]))
    return net, normal(8, 4), {"mode": "train"}


def isomorphism():
    load("torch_geometric")
    from torch_geometric.nn import GINConv

    return graph(
        GINConv(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6)), train_eps=True), GINConv(nn.Linear(6, K))
    )


def dynamic_attention():
    load("torch_geometric")
    from torch_geometric.nn import GATv2Conv

    return graph(GATv2Conv(4, 3, heads=2), GATv2Conv(6, K))


MADE = [levit, falcon, whisper, isomorphism, dynamic_attention]


def spectrum(net, x, y, loss, output=None, mode="eval"):
    """Return all eigenvalues, descending, and the shares of the residual, from one backward pass for each output."""
    net = copy.deepcopy(net).double().train(mode == "train")
    double = (
        {k: v.double() if v.is_floating_point() else v for k, v in x.items()} if isinstance(x, dict) else x.double()
    )
    torch.set_default_dtype(torch.float64)  # of what a forward pass makes
    try:
        f = net(**double) if isinstance(x, dict) else net(double)
    finally:
        torch.set_default_dtype(torch.float32)
    f = output(f) if output else f
    jacobian = gradients(f.flatten(1), [p for p in net.parameters() if p.requires_grad])

    def of(flat):
        return loss(flat.view(f.shape), y)

    flat = f.detach().flatten()
    hessian, gradient = torch.autograd.functional.hessian(of, flat), torch.autograd.functional.jacobian(of, flat)
    curvatures, axes = torch.linalg.eigh(hessian)
    kept = curvatures > 1e-12 * curvatures.max()
    root, back = (axes[:, kept] * curvatures[kept] ** power @ axes[:, kept].mT for power in (0.5, -0.5))
    rows = root @ jacobian
    values, vectors = torch.linalg.eigh(rows @ rows.mT)
    return values.flip(0).clamp_min(0), (vectors.mT @ (back @ gradient)).square().flip(0), rows.shape[1]


def half_mse(f, y):
    return (f - y.double()).square().sum() / (2 * len(f))


def cross_entropy(f, y):
    return nn.functional.cross_entropy(f.flatten(0, -2), y.flatten())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["double", "single"])
@pytest.mark.parametrize("make", MADE, ids=lambda make: make.__name__)
def test_the_page_the_bounds_and_the_density_of_a_network_that_was_not_met_before(make, dtype):
    torch.manual_seed(0)
    net, x, options = make()
    net.eval()
    with torch.no_grad():
        f = net(**x) if isinstance(x, dict) else net(x)
    shape = (options["output"](f) if "output" in options else f).shape
    close = 1e-6 if dtype == torch.float64 else 1e-3

    values, shares, p = spectrum(net, x, normal(*shape), half_mse, **options)
    g = GaussNewton(net, x, normal(*shape), dtype=dtype, **options)
    page = g.report(budget=1e-3)
    assert float(page.largest.values[0]) == pytest.approx(float(values[0]), rel=2e-3)
    steps = torch.arange(len(page.bounds.lower))[:, None]
    curve = ((1 - page.bounds.rate * values) ** (2 * steps) @ shares) / 2
    assert (page.bounds.lower <= curve + close * curve[0]).all() and (
        curve <= page.bounds.upper + close * curve[0]
    ).all()
    assert page.bounds.within < 1.2 or float(page.bounds.upper[-1] - page.bounds.lower[-1]) < 2e-3 * curve[0]

    density = g.spectral_density(vectors=6, steps=8)
    assert density.size == min(p, len(values))
    for value in np.geomspace(float(values[0]) * 1e-4, float(values[0]) * 1.1, 12):
        low, high = density.below(value)
        assert low - 1e-6 <= int((values[: density.size] <= value).sum()) <= high + 1e-6

    y = classes(*shape)
    values, shares, _ = spectrum(net, x, y, cross_entropy, **options)
    g = GaussNewton(net, x, y, "cross_entropy", dtype=dtype, **options)
    assert g.eigenpairs(2, tolerance=close).values == pytest.approx(values[:2], rel=close)
    found, exact = g.waiting(GOAL), waiting(values, shares, 0.99 / float(values[0]), GOAL)
    assert found.lower <= exact.lower * 1.02 and exact.upper <= found.upper * 1.02 + 1
    assert 0.5 < g.effective_condition_number(GOAL) / exact.effective_condition_number < 2  # an estimate
