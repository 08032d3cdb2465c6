"""Architectures of other libraries, as they come, each against automatic differentiation of the whole batch.

Where a library is not installed its architectures are skipped; the nightly workflow installs them.
"""

import copy

import pytest
import torch
from torch import nn

from gnlib import GaussNewton
from tests.gnlib.derivatives import gradients
from tests.gnlib.jacobian.cases import gram_matrix
from tests.gnlib.libraries import load
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
    transformers = load("transformers")
    model = getattr(transformers, name)(getattr(transformers, configuration)(**sizes))
    return model.eval(), inputs, output, None


SMALL = dict(vocab_size=17, hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2)


def llama():
    return transformer("LlamaForCausalLM", "LlamaConfig", {"input_ids": tokens(3)}, **SMALL)


def t5():
    sizes = dict(vocab_size=17, d_model=8, d_kv=4, d_ff=12, num_layers=2, num_heads=2, decoder_start_token_id=0)
    inputs = {"input_ids": tokens(3), "labels": tokens(3, 4)}
    return transformer("T5ForConditionalGeneration", "T5Config", inputs, **sizes)


def bert():
    inputs = {"input_ids": tokens(), "attention_mask": (tokens() > 3).long()}
    return transformer("BertForSequenceClassification", "BertConfig", inputs, num_labels=K, **SMALL)


def mamba():
    sizes = dict(vocab_size=17, hidden_size=8, state_size=4, num_hidden_layers=2)
    return transformer("MambaForCausalLM", "MambaConfig", {"input_ids": tokens(3)}, **sizes)


def convnext():
    sizes = dict(hidden_sizes=[4, 6, 8, 8], depths=[1, 1, 1, 1], num_labels=K)
    return transformer("ConvNextForImageClassification", "ConvNextConfig", normal(N, 3, 32, 32), **sizes)


def differential_equation(method):
    """A neural ordinary differential equation, with steps of the solver's choice."""
    solve = pytest.importorskip("torchdiffeq").odeint

    def forward(self, x):
        return self.head(solve(lambda t, z: self.body(z).tanh(), x, torch.tensor([0.0, 1.0]), method=method)[-1])

    return Whole(forward, body=nn.Linear(4, 4), head=nn.Linear(4, K))


def ode_in_steps():
    return differential_equation("rk4"), normal(N, 4), None, None


def ode_adaptive():
    return differential_equation("dopri5"), normal(N, 4), None, "train"


def graph(layer):
    """Two layers of PyTorch Geometric on one graph, of which the nodes are the samples."""
    make = getattr(pytest.importorskip("torch_geometric.nn"), layer)
    net = Whole(lambda self, x: self.two(self.one(x, self.edges).relu(), self.edges), one=make(4, 6), two=make(6, K))
    net.register_buffer("edges", torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 0], [1, 2, 3, 4, 5, 6, 7, 0, 4]]))
    return net, normal(8, 4), None, "train"


def graph_convolution():
    return graph("GCNConv")


def graph_attention():
    return graph("GATConv")


def flow():
    """The logarithm of a density by an autoregressive flow."""
    transforms = pytest.importorskip("nflows.transforms.autoregressive")

    def forward(self, x):
        z, logarithm = self.flow(x)
        return torch.cat([z, logarithm[:, None]], 1)

    made = transforms.MaskedAffineAutoregressiveTransform(features=4, hidden_features=8)
    return Whole(forward, flow=made), normal(N, 4), None, None


def vision_transformer():
    vit = pytest.importorskip("vit_pytorch")
    sizes = dict(image_size=8, patch_size=4, num_classes=K, dim=8, depth=2, heads=2, mlp_dim=12)
    return vit.ViT(**sizes), normal(N, 3, 8, 8), None, None


MADE = [
    *(llama, t5, bert, mamba, convnext, ode_in_steps, ode_adaptive, graph_convolution, graph_attention),
    *(flow, vision_transformer),
]


ROUNDED = llama, t5, mamba
"""Their norms compute in single precision, in the oracle too; our casts are to double precision."""


@pytest.mark.parametrize("make", MADE, ids=lambda make: make.__name__)
def test_the_matrix_of_an_architecture_of_another_library_is_right(make):
    torch.manual_seed(0)
    net, x, output, mode = make()
    found = gram_matrix(net, x, output=output, mode=mode)
    double, output = copy.deepcopy(net).double(), output or (lambda y: y)
    if mode == "eval":
        double.eval()
    torch.set_default_dtype(torch.float64)  # of what a forward pass makes
    try:
        as_double = {k: v for k, v in x.items()} if isinstance(x, dict) else x.double() if x.is_floating_point() else x
        y = output(double(**as_double) if isinstance(x, dict) else double(as_double))
    finally:
        torch.set_default_dtype(torch.float32)
    rows = gradients(y, [p for p in double.parameters() if p.requires_grad])
    expected = rows @ rows.mT / len(y)
    tolerance = 1e-6 if make in ROUNDED else 1e-11
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance * expected.abs().max().item())


@pytest.mark.parametrize(
    "make", [llama, bert, mamba, convnext, vision_transformer, flow], ids=lambda make: make.__name__
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_products_with_the_matrix_of_an_architecture_are_right(make, dtype):
    """The largest eigenvalues of the squared error, and the trace, beside those of the matrix."""
    torch.manual_seed(0)
    net, x, output, mode = make()
    by = GaussNewton(net, x, output=output, mode=mode, dtype=dtype)
    values = torch.linalg.eigvalsh(gram_matrix(net, x, output=output, mode=mode)).flip(0)
    found = by.eigenpairs(2, tolerance=1e-8 if dtype == torch.float64 else 1e-5)
    tolerance = 1e-5 if make in ROUNDED or dtype == torch.float32 else 1e-7
    torch.testing.assert_close(found.values, values[:2], rtol=tolerance, atol=0)
    estimate = by.trace()
    assert abs(estimate.value - float(values.sum())) < 5 * estimate.error + 1e-4 * float(values.sum())
