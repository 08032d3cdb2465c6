"""Networks that take several tensors, against the same that take one."""

import pytest
import torch
from torch import nn

import gnlib
from gnlib.diagnosis.inputs import networks_on
from gnlib.jacobian.gram import gram_of


class Two(nn.Module):
    """Embedded tokens, of which some are masked, and features beside them."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 3)
        self.head = nn.Linear(5, 2)

    def forward(self, tokens, mask, features):
        assert tokens.dtype == torch.int64 and mask.dtype == torch.bool
        embedded = (self.embedding(tokens) * mask[:, :, None]).sum(1)
        return self.head(torch.cat([embedded, features], 1))


class One(Two):
    def forward(self, packed):
        return super().forward(packed[:, :4].long(), packed[:, 4:8] > 0, packed[:, 8:])


def data(n=5):
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 7, (n, 4), generator=generator)
    mask = torch.rand(n, 4, generator=generator) > 0.3
    return tokens, mask, torch.randn(n, 2, generator=generator)


def test_several_tensors_are_as_good_as_one():
    torch.manual_seed(0)
    two, one = Two(), One()
    one.load_state_dict(two.state_dict())
    x = data()
    expected = gnlib.gauss_newton_gram(one, torch.cat([t.double() for t in x], 1))
    for given in (x, dict(zip(("tokens", "mask", "features"), x, strict=True))):
        found = networks_on(two, given)
        assert torch.equal(gram_of(found, 4.0), expected)
    shares = gnlib.by_layer(two, x).layers
    assert [share.layer for share in shares] == ["embedding", "head"]


def test_a_list_holds_batches():
    torch.manual_seed(0)
    net, x = nn.Linear(2, 3), torch.randn(6, 2)
    assert torch.equal(gram_of(networks_on(net, [x[:4], x[4:]]), 4.0), gnlib.gauss_newton_gram(net, x))


def test_the_mode_of_the_module_is_kept():
    class Dropped(Two):
        def forward(self, tokens, mask, features):
            return nn.functional.dropout(super().forward(tokens, mask, features), 0.5, self.training)

    net = Dropped().eval()
    before = {name: m.training for name, m in net.named_modules()}
    gnlib.by_layer(net, data())
    assert {name: m.training for name, m in net.named_modules()} == before
    with pytest.raises(ValueError, match="pass mode="):
        gnlib.by_layer(net.train(), data())


@pytest.mark.bad_input
def test_what_wrong_inputs_are_told():
    tokens, mask, features = data()
    with pytest.raises(ValueError, match=r"shapes \(5, 4\), \(4, 4\), \(5, 2\)"):
        networks_on(Two(), (tokens, mask[:4], features))
    for x in ((tokens, 3), (), {"a": None}):
        with pytest.raises(TypeError, match="something else than tensors of samples"):
            networks_on(Two(), x)
    with pytest.raises(TypeError, match="module is of type function"):
        networks_on(lambda x: x, (tokens,))
