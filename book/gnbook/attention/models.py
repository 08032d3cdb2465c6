"""A small transformer for images and for text, each part of it an argument.

Tokens come as vectors: patches of an image, or characters, one-hot. There are no biases, and layer normalisation has
no parameters, so that all weights are matrices whose entries are normal, with the variance gain^2 / columns.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnbook.shared.families import SIDE, colour_images
from gnbook.shared.networks import orthogonal
from gnbook.shared.training import one_hot

PATCH, TOKENS = 4, 16
LETTERS = " etaonhrisd*"
"""The eleven most frequent characters of the text, and one that stands for all others."""
ADDRESS = """
Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived in Liberty, and
dedicated to the proposition that all men are created equal.
Now we are engaged in a great civil war, testing whether that nation, or any nation so conceived and so dedicated, can
long endure. We are met on a great battle-field of that war. We have come to dedicate a portion of that field, as a
final resting place for those who here gave their lives that that nation might live. It is altogether fitting and proper
that we should do this.
But, in a larger sense, we can not dedicate - we can not consecrate - we can not hallow - this ground. The brave men,
living and dead, who struggled here, have consecrated it, far above our poor power to add or detract. The world will
little note, nor long remember what we say here, but it can never forget what they did here. It is for us the living,
rather, to be dedicated here to the unfinished work which they who fought here have thus far so nobly advanced. It is
rather for us to be here dedicated to the great task remaining before us - that from these honored dead we take
increased devotion to that cause for which they gave the last full measure of devotion - that we here highly resolve
that these dead shall not have died in vain - that this nation, under God, shall have a new birth of freedom - and that
government of the people, by the people, for the people, shall not perish from the earth.
"""
"""The text: Abraham Lincoln at Gettysburg, 1863, in the public domain."""

STRIDE = 25  # characters from one sample of the text to the next
DATA = ("images", "text")
BRANCHES = ("plain", "drawn", "multiplier")


@dataclass(frozen=True)
class Shape:
    """What a transformer is like.

    H. Saratchandran, S. Lucey (2025), Spectral conditioning of attention improves transformer performance, NeurIPS 38,
    arXiv:2603.07162 (the shift).
    """

    width: int = 32  # of a token
    depth: int = 2  # blocks, each of attention and of a hidden layer
    heads: int = 4  # of each attention
    norm: str = "before"  # layer normalisation "before" each branch and the head, "after" each sum, or "none"
    # "plain", or with the factor 1 / sqrt(2 depth): in its last matrix ("drawn") or in the forward pass ("multiplier")
    branch: str = "plain"
    # deviation of the entries of embedded tokens and positions; 1 / sqrt(width) if not given
    embedding: float | None = None
    gain: float = 1.0  # of all other matrices
    scores: float = 1.0  # times the gain, for queries and keys alone
    tied: bool = False  # whether the head is the transposed embedding, which text alone can have
    # of queries, keys and values; "orthogonal" and "uneven", of singular values from 1 to 100, have the norm of
    # "Gaussian" ones, and "same" has one matrix for queries and keys
    weights: str = "Gaussian"
    shift: float = 0.0  # times the identity, added to queries, keys and values and not trained


class Attention(nn.Module):
    """Attention without biases; `shift` times the identity, added to queries, keys and values, is not trained."""

    def __init__(self, width: int, heads: int, *, causal: bool, shift: float = 0.0) -> None:
        super().__init__()
        self.heads, self.causal, self.shift = heads, causal, shift
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))

    def weights(self, tokens: Float[Tensor, "n t width"]) -> Float[Tensor, "n heads t t"]:
        """Return the weights of attention, of which each row adds up to one."""
        query, key = (self._split(layer, tokens) for layer in (self.query, self.key))
        scores = query @ key.mT / query.shape[-1] ** 0.5
        if self.causal:  # tokens that come later are not seen
            scores = scores + scores.new_full(scores.shape[-2:], -math.inf).triu(1)
        return scores.softmax(-1)

    def forward(self, tokens: Float[Tensor, "n t width"]) -> Float[Tensor, "n t width"]:
        """Return for each token the mean of values, weighted by attention."""
        mixed = self.weights(tokens) @ self._split(self.value, tokens)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _split(self, layer: nn.Linear, tokens: Float[Tensor, "n t width"]) -> Float[Tensor, "n heads t part"]:
        made = layer(tokens) + self.shift * tokens if self.shift else layer(tokens)
        return made.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class Transformer(nn.Module):
    """Embedded tokens with positions, blocks, and a linear head of the mean token, or of the last one if causal."""

    def __init__(self, shape: Shape, inputs: int, outputs: int, *, causal: bool) -> None:
        super().__init__()
        width, before = shape.width, shape.norm == "before"
        self.causal, self.after = causal, shape.norm == "after"
        self.factor = (2 * shape.depth) ** -0.5 if shape.branch == "multiplier" else 1.0
        self.embedding = nn.Linear(inputs, width, bias=False)
        self.position = nn.Parameter(torch.empty(TOKENS, width))
        self.branches = nn.ModuleList()
        for _ in range(shape.depth):
            hidden = nn.Linear(width, 2 * width, bias=False), nn.GELU(), nn.Linear(2 * width, width, bias=False)
            for layers in ([Attention(width, shape.heads, causal=causal, shift=shape.shift)], hidden):
                norms = [nn.LayerNorm(width, elementwise_affine=False)] if before else []
                self.branches.append(nn.Sequential(*norms, *layers))
        self.norm = nn.LayerNorm(width, elementwise_affine=False) if shape.norm != "none" else nn.Identity()
        self.head = None if shape.tied else nn.Linear(width, outputs, bias=False)

    def forward(self, x: Float[Tensor, "n t inputs"]) -> Float[Tensor, "n k"]:
        """Return the outputs."""
        tokens = self.embedding(x) + self.position
        for branch in self.branches:
            tokens = tokens + self.factor * branch(tokens)
            tokens = self.norm(tokens) if self.after else tokens
        tokens = tokens if self.after else self.norm(tokens)
        last = tokens[:, -1] if self.causal else tokens.mean(1)
        return last @ self.embedding.weight if self.head is None else self.head(last)


def build(data: str, seed: int, **changes: object) -> Transformer:
    """Return a transformer in double precision, for `"images"` or causal for `"text"`; changes are of a `Shape`."""
    shape, text = Shape(**changes), data == "text"
    network = Transformer(shape, len(LETTERS) if text else 3 * PATCH**2, len(LETTERS) if text else 10, causal=text)
    generator = torch.Generator().manual_seed(seed)
    entries = shape.width**-0.5 if shape.embedding is None else shape.embedding
    network = network.double()
    with torch.no_grad():
        for name, weight in network.named_parameters():
            kind = name.split(".")[-2] if "." in name else name
            draw = torch.randn(weight.shape, dtype=torch.float64, generator=generator)
            if kind in ("embedding", "position"):
                draw *= entries
            else:
                draw *= shape.gain / weight.shape[1] ** 0.5
            if kind in ("query", "key"):
                draw *= shape.scores
            if kind in ("query", "key", "value"):
                draw = respread(draw, shape.weights, generator)
            if shape.branch == "drawn" and kind in ("out", "3" if shape.norm == "before" else "2"):
                draw *= (2 * shape.depth) ** -0.5
            weight.copy_(draw)
        if shape.weights == "same":
            for layer in network.modules():
                if isinstance(layer, Attention):
                    layer.key.weight.copy_(layer.query.weight)
    return network


def respread(weight: Float[Tensor, "d d"], weights: str, generator: torch.Generator) -> Float[Tensor, "d d"]:
    """Return a matrix with the Frobenius norm of another: `"orthogonal"`, or `"uneven"` of condition number 100."""
    if weights not in ("orthogonal", "uneven"):
        return weight
    basis, other = (orthogonal(torch.empty_like(weight), generator) / 2**0.5 for _ in range(2))
    values = torch.ones(len(weight), dtype=weight.dtype)
    if weights == "uneven":
        values = torch.logspace(0, 2, len(weight), dtype=weight.dtype)
    return basis * (values * weight.norm() / values.norm()) @ other


def samples(data: str, n: int) -> tuple[Float[Tensor, "n t inputs"], Float[Tensor, "n k"]]:
    """Return tokens, of mean squared norm one, and one-hot targets.

    Images are 16 patches of the first images of CIFAR-10, at half the resolution, each colour standardised. Text is 16
    characters of the address, and the target is the next one.
    """
    if data == "images":
        images, labels = colour_images(n)
        side = SIDE // PATCH
        patches = images.unflatten(-2, (side, PATCH)).unflatten(-1, (side, PATCH))
        return patches.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2) / (3 * PATCH**2) ** 0.5, one_hot(labels, 10)
    text = "".join(c for c in " ".join(ADDRESS.lower().split()) if c.isalpha() or c == " ")
    letters = [LETTERS.index(c if c in LETTERS else "*") for c in text]
    windows = torch.tensor([letters[STRIDE * i : STRIDE * i + TOKENS + 1] for i in range(n)])
    return one_hot(windows[:, :-1], len(LETTERS)), one_hot(windows[:, -1], len(LETTERS))
