"""Networks of other libraries, as they come, against automatic differentiation of the whole batch.

Where a library is not installed its networks are skipped; the nightly workflow installs them.
"""

import copy
import importlib.util
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import nn

from gnlib import GaussNewton
from gnlib.laws.waiting import waiting
from tests.gnlib.derivatives import gradients
from tests.gnlib.jacobian.cases import gram_matrix
from tests.gnlib.networks import Whole

pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore")]

N, K = 6, 3
GOAL = 0.3


def normal(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def tokens(n=N, length=5, letters=17):
    return torch.randint(1, letters, (n, length), generator=torch.Generator().manual_seed(2))


def classes(*shape):
    y = torch.randint(0, shape[-1], shape[:-1], generator=torch.Generator().manual_seed(3))
    y.flatten()[::4] = -100
    return y


def logits(result):
    return result.logits.flatten(1)


def logits_of_tokens(result):
    return result.logits


def transformer(name, configuration, inputs, output=logits, **sizes):
    """A model of Hugging Face's transformers, without weights from elsewhere."""
    find = importlib.util.find_spec
    with patch.object(importlib.util, "find_spec", lambda of, *more: find(of, *more) if of != "torchvision" else None):
        transformers = pytest.importorskip(
            "transformers"
        )  # it remembers that there is none; one may be of another torch
        transformers.utils.is_torchvision_available()
    model = getattr(transformers, name)(getattr(transformers, configuration)(**sizes))
    return model.eval(), inputs, {"output": output}


SMALL = dict(vocab_size=17, hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2)


def llama():
    return transformer("LlamaForCausalLM", "LlamaConfig", {"input_ids": tokens(3)}, **SMALL)


def bert():
    inputs = {"input_ids": tokens(), "attention_mask": (tokens() > 3).long()}
    return transformer("BertForSequenceClassification", "BertConfig", inputs, num_labels=K, **SMALL)


def mamba():
    sizes = dict(vocab_size=17, hidden_size=8, state_size=4, num_hidden_layers=2)
    return transformer("MambaForCausalLM", "MambaConfig", {"input_ids": tokens(3)}, **sizes)


def convnext():
    sizes = dict(hidden_sizes=[4, 6, 8, 8], depths=[1, 1, 1, 1], num_labels=K)
    return transformer("ConvNextForImageClassification", "ConvNextConfig", normal(N, 3, 32, 32), **sizes)


def differential_equation():
    """A neural ordinary differential equation, with steps of the solver's choice."""
    solve = pytest.importorskip("torchdiffeq").odeint

    def forward(self, x):
        return self.head(solve(lambda t, z: self.body(z).tanh(), x, torch.tensor([0.0, 1.0]), method="dopri5")[-1])

    return Whole(forward, body=nn.Linear(4, 4), head=nn.Linear(4, K)), normal(N, 4), {"mode": "train"}


def graph(one, two):
    """Two layers of PyTorch Geometric on one graph, of which the nodes are the samples, and are asked for together."""
    net = Whole(lambda self, x: self.two(torch.tanh(self.one(x, self.edges)), self.edges), one=one, two=two)
    net.register_buffer("edges", torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 0, 3], [1, 2, 3, 4, 5, 6, 7, 0, 4, 1]]))
    return net, normal(8, 4), {"mode": "train"}


def graph_convolution():
    layer = pytest.importorskip("torch_geometric.nn").GCNConv
    return graph(layer(4, 6), layer(6, K))


def isomorphism():
    layer = pytest.importorskip("torch_geometric.nn").GINConv
    one = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6))
    return graph(layer(one, train_eps=True), layer(nn.Linear(6, K)))


def dynamic_attention():
    layer = pytest.importorskip("torch_geometric.nn").GATv2Conv
    return graph(layer(4, 3, heads=2), layer(6, K))


def flow():
    """The logarithm of a density by an autoregressive flow."""
    transforms = pytest.importorskip("nflows.transforms.autoregressive")

    def forward(self, x):
        z, logarithm = self.flow(x)
        return torch.cat([z, logarithm[:, None]], 1)

    made = transforms.MaskedAffineAutoregressiveTransform(features=4, hidden_features=8)
    return Whole(forward, flow=made), normal(N, 4), {}


def vision_transformer():
    vit = pytest.importorskip("vit_pytorch")
    sizes = dict(image_size=8, patch_size=4, num_classes=K, dim=8, depth=2, heads=2, mlp_dim=12)
    return vit.ViT(**sizes), normal(N, 3, 8, 8), {}


def whisper():
    """Sounds that are encoded by convolutions, and tokens that look at them; the embedding is the head."""
    sizes = dict(encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, d_model=8)
    sizes |= dict(encoder_ffn_dim=12, decoder_ffn_dim=12, vocab_size=17, num_mel_bins=4, max_source_positions=4)
    sizes |= dict(max_target_positions=8, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
    inputs = {"input_features": normal(3, 4, 8), "decoder_input_ids": tokens(3, 4)}
    return transformer("WhisperForConditionalGeneration", "WhisperConfig", inputs, logits_of_tokens, **sizes)


def double_outputs(net, x, output=None, mode=None):
    """Outputs in double precision, and their Jacobian by the parameters."""
    net = copy.deepcopy(net).double()
    if mode is not None:
        net.train(mode == "train")
    given = x if isinstance(x, dict) else {"x": x}
    double = {name: t.double() if t.is_floating_point() else t for name, t in given.items()}
    torch.set_default_dtype(torch.float64)  # of what a forward pass makes
    try:
        f = net(**double) if isinstance(x, dict) else net(*double.values())
    finally:
        torch.set_default_dtype(torch.float32)
    f = output(f) if output else f
    return f, gradients(f, [p for p in net.parameters() if p.requires_grad])


ROUNDED = llama, mamba
"""Their norms compute in single precision, in the oracle too; our casts are to double precision."""
MATRICES = [
    *(llama, bert, mamba, convnext, differential_equation, graph_convolution),
    *(flow, vision_transformer),
]
PRODUCTS = {llama, bert, mamba, convnext, vision_transformer, flow}


@pytest.mark.parametrize("make", MATRICES, ids=lambda make: make.__name__)
def test_the_matrix_of_a_network_of_another_library_and_products_with_it_are_right(make):
    torch.manual_seed(0)
    net, x, options = make()
    found = gram_matrix(net, x, **options)
    f, rows = double_outputs(net, x, **options)
    expected = rows @ rows.mT / len(f)
    tolerance = 1e-6 if make in ROUNDED else 1e-11
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance * expected.abs().max().item())
    values = torch.linalg.eigvalsh(found).flip(0)
    for dtype in (torch.float64, torch.float32) if make in PRODUCTS else ():
        by = GaussNewton(net, x, dtype=dtype, **options)
        pairs = by.eigenpairs(2, tolerance=1e-8 if dtype == torch.float64 else 1e-5)
        tolerance = 1e-5 if make in ROUNDED or dtype == torch.float32 else 1e-7
        torch.testing.assert_close(pairs.values, values[:2], rtol=tolerance, atol=0)
        estimate = by.trace()
        assert abs(estimate.value - float(values.sum())) < 5 * estimate.error + 1e-4 * float(values.sum())


def spectrum(f, jacobian, y, loss):
    """Return all eigenvalues, descending, the shares of the residual, and the number of parameters."""

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
@pytest.mark.parametrize("make", [whisper, isomorphism, dynamic_attention], ids=lambda make: make.__name__)
def test_the_page_the_bounds_and_the_density_of_a_network_that_was_not_met_before(make, dtype):
    torch.manual_seed(0)
    net, x, options = make()
    f, jacobian = double_outputs(net, x, **options)
    shape, close = f.shape, 1e-6 if dtype == torch.float64 else 1e-3

    values, shares, p = spectrum(f, jacobian, normal(*shape), half_mse)
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
    values, shares, _ = spectrum(f, jacobian, y, cross_entropy)
    g = GaussNewton(net, x, y, "cross_entropy", dtype=dtype, **options)
    assert g.eigenpairs(2, tolerance=close).values == pytest.approx(values[:2], rel=close)
    found, exact = g.waiting(GOAL), waiting(values, shares, 0.99 / float(values[0]), GOAL)
    assert found.lower <= exact.lower * 1.02 and exact.upper <= found.upper * 1.02 + 1
    assert 0.5 < g.effective_condition_number(GOAL) / exact.effective_condition_number < 2  # an estimate
