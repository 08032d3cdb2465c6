"""Numbers that rank architectures or initialisations without training, as their authors' public code computes them."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnlib.jacobian.network import Network
from gnlib.losses import loss_of

WEIGHTED = nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d
UNITS = nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Softplus, nn.Tanh
UNDEFINED = 100_000.0  # what TE-NAS takes 0 / 0 for
EPSILON = 1e-5  # of MetaInit


def gradient_quotient(gradient: Float[Tensor, " p"], product: Float[Tensor, " p"]) -> float:
    r"""Return the gradient quotient of MetaInit, how much a step of rate one would change the gradient, relative to it.

    :math:`\frac1p \sum_j | (g_j - (H g)_j) / (g_j + \varepsilon \operatorname{sign} g_j) - 1 |`, with the sign of 0
    taken as 1 and :math:`\varepsilon = 10^{-5}`. The authors take noise for data; here they are those of the training.

    Y. N. Dauphin, S. S. Schoenholz (2019), MetaInit: initializing learning by learning to initialize, NeurIPS 32, Eq. 1
    and the code in its appendix.
    """
    sign = torch.where(gradient >= 0, 1.0, -1.0)
    return ((gradient - product) / (gradient + EPSILON * sign) - 1).abs().mean().item()


@torch.no_grad()
def naswot(module: nn.Module, x: Float[Tensor, "n ..."]) -> float:
    r"""Return the NASWOT score, the logarithm of the determinant of the kernel of activation patterns.

    Entry (i, j) counts the units that are on, with a positive input, for both samples or for neither. The authors' code
    counts those of ReLU modules only; here other nonlinear modules of one input count too (GELU, tanh, ...). It is nan
    for a network without any, -inf where two samples share all of their patterns. Functions that are not called through
    modules are not seen.

    J. Mellor, J. Turner, A. Storkey, E. J. Crowley (2021), Neural architecture search without training, ICML,
    section 3.
    """
    module, kernel = copy.deepcopy(module).double(), x.new_zeros(len(x), len(x), dtype=torch.float64)

    def count(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        on = (inputs[0].flatten(1) > 0).double()
        kernel.add_(on @ on.mT + (1 - on) @ (1 - on).mT)

    found = [m.register_forward_pre_hook(count) for m in module.modules() if isinstance(m, UNITS)]
    module(x.double())
    return torch.linalg.slogdet(kernel).logabsdet.item() if found else torch.nan


def zico(module: nn.Module, x: Float[Tensor, "n ..."], y: Tensor, loss: str, *, generator: torch.Generator) -> float:
    r"""Return the ZiCo score, the sum over the layers of the logarithm of their gradients' inverse variation.

    :math:`\sum_\ell \log \sum_{w \in \theta_\ell} \mathbb E |\nabla_w L| / \operatorname{std}(\nabla_w L)` over the
    weights of linear layers and convolutions whose gradient varies, mean and population deviation over two batches: the
    halves of the samples in a random order. Layers without a gradient are left out, as in the authors' code. It is nan
    for fewer than two samples.

    G. Li, Y. Yang, K. Bhardwaj, R. Marculescu (2023), ZiCo: zero-shot NAS via inverse coefficient of variation on
    gradients, ICLR, Eq. 16.
    """
    if len(x) < 2:
        return torch.nan
    module, x = copy.deepcopy(module).double().train(), x.double()
    weights = _weights_of(module)
    order = torch.randperm(len(x), generator=generator, device=generator.device).to(x.device)
    gradients = []
    for half in order.tensor_split(2):
        outputs = module(x[half])
        change = loss_of(loss, y[half], outputs.detach()).gradient(outputs.detach()) / len(half)
        gradients.append(torch.autograd.grad(outputs, weights, change, allow_unused=True, materialize_grads=True))
    return inverse_variation(gradients)


def inverse_variation(gradients: Sequence[Sequence[Tensor]]) -> float:
    """Return the ZiCo score of gradients, of each batch those of all layers."""
    score = 0.0
    for layer in zip(*gradients, strict=True):
        stacked = torch.stack(layer).flatten(1).double()
        deviation, size = stacked.std(0, correction=0), stacked.abs().mean(0)
        total = (size / deviation)[deviation > 0].sum()
        score += total.log().item() if total > 0 else 0.0
    return score


def synflow(module: nn.Module, x: Float[Tensor, "n ..."]) -> float:
    r"""Return the SynFlow score, the sum of :math:`|\theta \, \partial R / \partial \theta|` over all weights.

    R is the sum of the outputs on one sample of ones, with all parameters and buffers replaced by their absolute values
    and the module in evaluation mode, as the authors' code has it; the weights are those of linear layers and
    convolutions, without biases. Where a layer normalises each sample by itself, much of the sample of ones is lost. Of
    the samples only the shape counts.

    H. Tanaka, D. Kunin, D. L. K. Yamins, S. Ganguli (2020), Pruning neural networks without any data by iteratively
    conserving synaptic flow, NeurIPS 33, Eq. 1 and section 5.
    """
    module = copy.deepcopy(module).double().eval()
    with torch.no_grad():
        for tensor in module.state_dict().values():
            tensor.abs_()
    weights = _weights_of(module)
    total = module(torch.ones_like(x[:1], dtype=torch.float64)).sum()
    gradients = torch.autograd.grad(total, weights, allow_unused=True, materialize_grads=True)
    return sum((g * p).abs().sum().item() for g, p in zip(gradients, weights, strict=True))


def te_nas(module: nn.Module, x: Float[Tensor, "n ..."]) -> float:
    r"""Return the condition number of TE-NAS as its authors' code has it.

    That is not the condition number of the tangent kernel of all outputs. The code takes for each sample the gradient
    of the *sum* of its outputs, in training mode, by those parameters with "weight" in their names; it forms the n x n
    matrix of their inner products, and divides its largest eigenvalue by its first one, be that zero or negative by
    rounding. A quotient of nan is taken for 100,000. The authors compute in single precision, here it is double.

    W. Chen, X. Gong, Z. Wang (2021), Neural architecture search on ImageNet in four GPU hours: a theoretically inspired
    perspective, ICLR, section 3.1.1.
    """
    module = copy.deepcopy(module).double().train()
    weights = [p for name, p in module.named_parameters() if "weight" in name and p.requires_grad]
    rows = []
    for total in module(x.double()).flatten(1).sum(1):
        gradients = torch.autograd.grad(total, weights, retain_graph=True, allow_unused=True, materialize_grads=True)
        rows.append(torch.cat([g.flatten() for g in gradients]))
    jacobian = torch.stack(rows)
    values = torch.linalg.eigvalsh(jacobian @ jacobian.mT)
    return torch.nan_to_num(values[-1] / values[0], nan=UNDEFINED).item()


def chi_1(network: Network, *, generator: torch.Generator) -> float:
    r"""Return how far squared gradients are from keeping their size, :math:`|\log \chi_1|`.

    The mean field theory of wide networks has :math:`\mathbb E \|\delta^\ell\|^2 = \chi_1 \, \mathbb E
    \|\delta^{\ell+1}\|^2` for the gradients :math:`\delta` by the pre-activations, so :math:`\chi_1` is the mean
    squared singular value of the Jacobian from layer to layer; networks train at any depth where it is 1, on the edge
    of chaos. It is measured on the network itself: a random direction of the outputs is propagated back, and
    :math:`\chi_1` is the geometric mean of the growth from the output of the last to that of the first linear layer or
    convolution called, over all the layers in between, those of branches too. It is nan with fewer than two layers.

    S. S. Schoenholz, J. Gilmer, S. Ganguli, J. Sohl-Dickstein (2017), Deep information propagation, ICLR, section 4.
    """
    with network.as_template(), torch.enable_grad(), _outputs_of_layers(network.module) as layers:
        leaves = {name: p.detach().requires_grad_() for name, p in network.parameters.items()}
        outputs = network(leaves, network.x)
        if len(layers) < 2:
            return torch.nan
        direction = torch.randn(outputs.shape, generator=generator, dtype=torch.float64, device=generator.device)
        ends = torch.autograd.grad(outputs, [layers[0], layers[-1]], direction.to(outputs.device))
    first, last = (gradient.square().sum() for gradient in ends)
    return (first / last).log().abs().item() / (len(layers) - 1)


@contextmanager
def _outputs_of_layers(module: nn.Module) -> Iterator[list[Tensor]]:
    """Collect the outputs of linear layers and convolutions in the order in which they are called."""
    found: list[Tensor] = []
    hooks = [
        m.register_forward_hook(lambda _module, _inputs, output: found.append(output))
        for m in module.modules()
        if isinstance(m, WEIGHTED)
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _weights_of(module: nn.Module) -> list[Tensor]:
    """Return the weights of linear layers and convolutions."""
    return [m.weight for m in module.modules() if isinstance(m, WEIGHTED)]
