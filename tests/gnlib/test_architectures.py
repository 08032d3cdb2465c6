"""Networks of other libraries, as they come, against automatic differentiation of the whole batch.

Where a library is not installed its networks are skipped; the nightly workflow installs them.
"""

import copy
import importlib.util
from unittest.mock import patch

import pytest
import torch
from torch import nn

from gnlib import GaussNewton
from tests.gnlib.derivatives import gradients
from tests.gnlib.jacobian.cases import gram_matrix
from tests.gnlib.networks import Whole

pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore")]

N, K = 6, 3


def normal(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def tokens(n=N, length=5, letters=17):
    return torch.randint(1, letters, (n, length), generator=torch.Generator().manual_seed(2))


def logits(result):
    return result.logits.flatten(1)


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
    return transformer("WhisperForConditionalGeneration", "WhisperConfig", inputs, **sizes)


ROUNDED = llama, mamba
"""Their norms compute in single precision, in the oracle too; our casts are to double precision."""
PRODUCTS = [llama, bert, mamba, convnext, vision_transformer, flow, whisper, dynamic_attention]
MADE = [*PRODUCTS, differential_equation, graph_convolution, isomorphism]


@pytest.mark.parametrize("make", MADE, ids=lambda make: make.__name__)
def test_the_matrix_of_a_network_of_another_library_and_products_with_it_are_right(make):
    torch.manual_seed(0)
    net, x, options = make()
    found = gram_matrix(net, x, **options)
    double = copy.deepcopy(net).double()
    given = x if isinstance(x, dict) else {"x": x}
    given = {name: t.double() if t.is_floating_point() else t for name, t in given.items()}
    torch.set_default_dtype(torch.float64)  # of what a forward pass makes
    try:
        y = double(**given) if isinstance(x, dict) else double(*given.values())
    finally:
        torch.set_default_dtype(torch.float32)
    y = options["output"](y) if "output" in options else y
    rows = gradients(y, [p for p in double.parameters() if p.requires_grad])
    expected = rows @ rows.mT / len(y)
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
