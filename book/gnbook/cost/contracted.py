"""The direct way to the matrix: the Jacobian of all samples at once, times itself."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


def contracted(module: nn.Module, x: Float[Tensor, "n ..."]) -> Float[Tensor, "nk nk"]:
    r"""Return :math:`\frac1n J J^\top` from the whole Jacobian, as torch's own tutorial on tangent kernels has it.

    Parameters
    ----------
    module
        a network that takes samples one by one, of which all parameters count
    x
        n samples

    Examples
    --------
    >>> contracted(nn.Linear(2, 1, bias=False), torch.tensor([[3.0, 4.0]]))
    tensor([[25.]])
    """
    parameters = {name: p.detach() for name, p in module.named_parameters()}

    def outputs(p: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(module, p, x[None])[0]

    parts = torch.func.vmap(torch.func.jacrev(outputs), (None, 0))(parameters, x).values()
    return sum(part.flatten(2).flatten(0, 1) @ part.flatten(2).flatten(0, 1).mT for part in parts) / len(x)
