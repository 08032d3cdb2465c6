"""Attention of linear layers."""

from jaxtyping import Float
from torch import Tensor, nn


class Attention(nn.Module):
    """Attention with several heads, made of linear layers, so that each can be pruned; written out for `torch.vmap`."""

    def __init__(self, width: int, heads: int) -> None:
        if min(width, heads) < 1 or width % heads:
            raise ValueError(f"width is {width} and heads is {heads}; a number of heads that divides it was expected.")
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, tokens: Float[Tensor, "n t width"]) -> Float[Tensor, "n t width"]:
        """Return what each token takes from the others."""
        query, key, value = (
            layer(tokens).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = query @ key.mT / query.shape[-1] ** 0.5
        return self.out((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))
