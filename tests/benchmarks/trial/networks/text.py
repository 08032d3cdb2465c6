"""Text: what scikit-learn writes about its tables, letter by letter, and networks from two libraries."""

from functools import cache

import torch
from torch import Tensor, nn

from tests.benchmarks.trial.cases import Case, Data, generator, parted
from tests.gnlib.networks import Whole

CLASSES = "cross_entropy"
TABLES = "wine", "breast_cancer", "diabetes"
LETTERS = " abcdefghijklmnopqrstuvwxyz"
LENGTH = 16


@cache
def documents() -> list[Tensor]:
    """Return the letters of each description as numbers, and all else as one space."""
    from sklearn import datasets

    found = []
    for name in TABLES:
        raw = getattr(datasets, f"load_{name}")().DESCR.lower()
        words = "".join(c if c in LETTERS else " " for c in raw).split()
        found.append(torch.tensor([LETTERS.index(c) for c in " ".join(words)]))
    return found


def pieces(count: int) -> tuple[Tensor, Tensor]:
    """Return pieces of a letter more than `LENGTH`, and which description each is from."""
    g, texts = generator(), documents()
    label = torch.arange(count) % len(texts)
    starts = [int(torch.randint(len(texts[k]) - LENGTH, (1,), generator=g)) for k in label]
    return torch.stack([texts[k][s : s + LENGTH + 1] for k, s in zip(label, starts, strict=True)]), label


def next_letter() -> Data:
    x, _ = pieces(264)
    return parted(x[:, :-1], x[:, -1], n=32)


def each_letter() -> Data:
    x, _ = pieces(124)
    return parted(x[:, :-1], x[:, 1:], n=24)


def source() -> Data:
    """Pieces of 6 to 16 letters, and which description they are from."""
    x, y = pieces(264)
    x, length = x[:, :-1], torch.randint(6, LENGTH + 1, (264, 1), generator=generator(1))
    mask = (torch.arange(LENGTH) < length).long()
    return parted({"input_ids": x * mask, "attention_mask": mask}, y, n=32)


def source_of_whole() -> Data:
    x, y = pieces(264)
    return parted(x[:, :-1], y)


SIZES = dict(vocab_size=len(LETTERS), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)


def gpt() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = dict(vocab_size=len(LETTERS), n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2)
    sizes |= dict(bos_token_id=0, eos_token_id=0)
    silent = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, attn_implementation="eager")
    return GPT2LMHeadModel(GPT2Config(**sizes, **silent))


def bert() -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    silent = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="eager")
    return BertForSequenceClassification(BertConfig(**SIZES, **silent, num_labels=len(TABLES)))


def llama() -> nn.Module:
    """Weights of deviation 1 / sqrt(width), where 0.02 is meant for networks that are a hundred times as wide."""
    from transformers import LlamaConfig, LlamaForCausalLM

    options = dict(use_cache=False, attn_implementation="eager", initializer_range=32**-0.5)
    return LlamaForCausalLM(LlamaConfig(**SIZES, **options))


def reader() -> nn.Module:
    """A GRU on embedded letters, and a linear map of the mean of its states."""
    layers = dict(embed=nn.Embedding(len(LETTERS), 16), rnn=nn.GRU(16, 24, batch_first=True))
    head = nn.Linear(24, len(TABLES))
    return Whole(lambda self, ids: self.head(self.rnn(self.embed(ids))[0].mean(1)), **layers, head=head)


CASES = {
    "letters-gpt": Case("transformers", "GPT-2", gpt, next_letter, CLASSES, output=lambda r: r.logits[:, -1]),
    "source-bert": Case("transformers", "BERT", bert, source, CLASSES, output=lambda r: r.logits),
    "letters-llama-prepared": Case(
        "transformers", "Llama", llama, each_letter, CLASSES, output=lambda r: r.logits, prepared=True
    ),
    "source-gru": Case("torch", "GRU on embedded letters", reader, source_of_whole, CLASSES),
}
