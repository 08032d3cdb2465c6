"""Other ways to a better kernel: dividing by the root of a diagonal, or by the features of each layer."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnlib.chapters.design.layers import jacobian_of, layers_of
from gnlib.chapters.design.objectives import flow_time

DAMPING = 1e-3  # of the mean eigenvalue of a layer's second moment


def plain(network: nn.Module, x: Float[Tensor, "n ..."]) -> Float[Tensor, "nk nk"]:
    r"""Return the tangent kernel, :math:`\frac1n J J^\top`.

    Examples
    --------
    >>> plain(nn.Linear(2, 1, bias=False), torch.tensor([[3.0, 4.0]]))
    tensor([[25.]], dtype=torch.float64)
    """
    return sum(j @ j.mT for j in jacobian_of(network, x).values()) / len(x)


def diagonal(network: nn.Module, x: Float[Tensor, "n ..."]) -> Float[Tensor, "nk nk"]:
    r"""Return :math:`\frac1n J P^{-1} J^\top`, P the root of the diagonal of the Gauss-Newton matrix, as for Adam.

    Parameters
    ----------
    network, x
        as for :func:`gnlib.chapters.design.layers.layers_of`
    """
    return layers_of(network, x, preconditioned=True).parts.sum(0)


def features(network: nn.Module, x: Float[Tensor, "n ..."]) -> Float[Tensor, "nk nk"]:
    r"""Return the kernel of K-FAC's input factors alone, :math:`\frac1n \sum_l J_l (A_l + \delta_l I)^{-1} J_l^\top`.

    :math:`A_l` is the second moment of what a linear layer is applied to, with a one for its bias, and multiplies the
    inputs of its weights; the damping is a thousandth of its mean eigenvalue.

    Parameters
    ----------
    network
        of linear layers with biases, and of what has no parameters
    x
        n samples

    Raises
    ------
    ValueError
        Parameters that are not of such layers.

    References
    ----------
    J. Martens, R. Grosse (2015), Optimizing neural networks with Kronecker-factored approximate curvature, ICML,
    section 3 (both factors; the other one, of the gradients, is left out).
    """
    layers = {name: m for name, m in network.named_modules() if isinstance(m, nn.Linear) and m.bias is not None}
    own = {f"{name}.{part}" for name in layers for part in ("weight", "bias")}
    if own != dict(network.named_parameters()).keys():
        raise ValueError("The network has parameters that are not weights and biases of linear layers.")
    seen: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        return lambda _module, inputs: seen.update({name: inputs[0].detach()})

    hooks = [layer.register_forward_pre_hook(keep(name)) for name, layer in layers.items()]
    network(x)
    for hook in hooks:
        hook.remove()
    jacobian, total = jacobian_of(network, x), 0
    for name in layers:
        inputs = nn.functional.pad(seen[name], (0, 1), value=1.0)
        moment = inputs.mT @ inputs / len(x)
        damped = moment + DAMPING * moment.trace() / len(moment) * torch.eye(len(moment), device=moment.device)
        weights = jacobian[f"{name}.weight"].unflatten(1, (layers[name].out_features, -1))
        block = torch.cat([weights, jacobian[f"{name}.bias"][:, :, None]], 2)
        total = total + block.flatten(1) @ torch.linalg.solve(damped, block.mT).mT.flatten(1).mT
    return total / len(x)


def quality(kernel: Float[Tensor, "nk nk"], residual: Float[Tensor, "n k"], goal: float) -> tuple[float, float]:
    r"""Return the condition number of a kernel, and the steps of its linear model to a goal, at half its largest rate.

    Parameters
    ----------
    kernel
        regular
    residual, goal
        of half the squared distance, the mean over the samples; the goal below the loss of the residual

    Examples
    --------
    >>> kernel = torch.diag(torch.tensor([1.0, 2.0], dtype=torch.float64))
    >>> [round(number, 6) for number in quality(kernel, torch.tensor([[1.0], [0.0]], dtype=torch.float64), 0.125)]
    [2.0, 0.693147]
    """
    values, vectors = torch.linalg.eigh(kernel)
    squares = (vectors.mT @ residual.flatten()).square() / (2 * len(residual))
    return (values[-1] / values[0]).item(), flow_time((values / values[-1]).clamp_min(0), squares, goal)
