"""What cannot be measured, each with one clear sentence."""

import pytest
import torch
from torch import nn

from gnlib import GaussNewton, condition_number
from tests.gnlib.derivatives import rows_of
from tests.gnlib.jacobian.cases import gram_matrix
from tests.gnlib.jacobian.helpers import (
    IMAGES,
    D,
    K,
    Net,
    assert_refused,
    assert_right,
    data,
    embedded,
    jacobian,
    made,
    tokens,
)
from tests.gnlib.networks import Whole


def squeezed(outputs, *where):
    return Whole(lambda self, x: self.linear(x).squeeze(*where), linear=nn.Linear(D, outputs))


@pytest.mark.bad_input
def test_outputs_without_an_axis_of_their_own_are_refused_with_a_hint_that_works():
    for net in (squeezed(1), squeezed(1, -1)):
        for n in (8, 1):
            assert "such as lambda y: y.reshape(-1, 1)." in assert_refused(net, data(n), "samples are of shape")
        gram = gram_matrix(net, data(8), output=lambda y: y.reshape(-1, 1))
        rows = jacobian(net, data(8))
        torch.testing.assert_close(gram, rows @ rows.mT / 8)


@pytest.mark.bad_input
def test_a_squeeze_that_takes_the_axis_of_the_samples_is_refused_with_the_reason():
    net = made(lambda: squeezed(K))
    assert_refused(net, data(8), r"fails on fewer samples.*A squeeze\(\) drops the axis of the samples")
    assert_right(net, data(8), mode="train")


def quantised():
    from torch.ao.nn.quantized import dynamic

    return nn.Sequential(nn.Linear(D, D), dynamic.Linear(D, K))


CLEAR = [
    (lambda: Net().to("meta"), data(4), ValueError, "body.weight is on the meta device, where it has no values"),
    (lambda: Net().to("meta"), data(4).to("meta"), ValueError, "body.weight is on the meta device"),
    (lambda: nn.Sequential(nn.LazyLinear(4)), data(4), ValueError, "0.weight has no shape yet; call the module"),
    (quantised, data(4), ValueError, r"1 \(Linear\) is quantised"),
    (lambda: torch.jit.script(nn.Linear(D, K)), data(4), ValueError, r"module \(RecursiveScriptModule\) is scripted"),
    (lambda: nn.Conv2d(3, 2, 3), IMAGES, ValueError, r"x is of torch.uint8, and integers are passed on.*x.double\(\)"),
    (lambda: embedded(), tokens() + 9, ValueError, "module fails on .* samples of x"),
    (lambda: nn.Linear, data(4), TypeError, "module is of type type; pass a torch.nn.Module"),
    (Net, None, TypeError, "x is of type NoneType; pass a torch tensor"),
]  # fmt: skip


@pytest.mark.bad_input
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("make, x, error, message", CLEAR)
def test_what_cannot_be_measured_gets_one_clear_sentence(make, x, error, message):
    module = made(make)
    with pytest.raises(error, match=message):
        gram_matrix(module, x)
    if isinstance(module, nn.Module) and x is not None:
        with pytest.raises(error, match=message):
            condition_number(module, x)


@pytest.mark.bad_input
def test_the_condition_number_of_a_function_or_of_no_samples_is_refused():
    with pytest.raises(TypeError, match="operand is of type function; a function has no parameters"):
        condition_number(lambda x: x, data(4))
    with pytest.raises(TypeError, match="x is missing; a network is measured on samples"):
        condition_number(Net())
    with pytest.raises(TypeError, match="memory is '4GB'; a positive number of GiB was expected"):
        condition_number(Net(), data(4), memory="4GB")


@pytest.mark.bad_input
@pytest.mark.parametrize("zero_head", [False, True])
def test_parameters_that_are_kept_where_they_are_not_registered_are_refused(zero_head):
    """Only in double precision, where nothing else tells that they are not those that are differentiated by."""
    net = made(lambda: Net(lambda self, h: h @ self.kept[0], zero_head=zero_head)).double()
    net.kept = [net.body.weight]
    assert_refused(net, data(8).double(), "depend on the parameter body.weight in a place where it is not registered")


# Samples that go through a network together only


torch.manual_seed(2)
EDGES = ((torch.rand(12, 12) < 0.3).float() + torch.eye(12)) / 5


def graph(mix, edges=EDGES):
    """A graph network, of which the nodes are the samples."""

    def forward(self, x):
        return mix(self.edges, self.two(mix(self.edges, self.one(x)).relu()))

    net = Whole(forward, one=nn.Linear(D, D), two=nn.Linear(D, K))
    net.register_buffer("edges", edges)
    return net


def attended(edges, h):
    """With weights of the edges by the values at their ends, as in a graph attention network."""
    scores = (h @ h.mT).masked_fill(edges == 0, -torch.inf)
    return scores.softmax(1) @ h


def by_source(edges, h):
    """Sums by the nodes at the ends of a list of edges."""
    source, target = edges.nonzero().mT
    return torch.zeros_like(h).index_add(0, target, h[source])


GRAPHS = {
    "product": lambda edges, h: edges @ h,
    "attention": attended,
    "list of edges": by_source,
}


@pytest.mark.parametrize("name", GRAPHS)
def test_nodes_of_a_graph_are_samples_that_go_together(name):
    net = made(lambda: graph(GRAPHS[name]))
    message = "fails on fewer samples, though not on all 12.*as those of the nodes of a graph, pass mode='train'"
    assert_refused(net, data(12), message)
    assert_right(net, data(12), mode="train")


def beside_a_norm(forward):
    """Batch normalisation in training, beside a layer whose result is no output."""
    parts = dict(body=nn.Linear(D, D), norm=nn.BatchNorm1d(D), head=nn.Linear(D, K), other=nn.Linear(D, 9))
    return Whole(lambda self, x: forward(self, self.norm(self.body(x)).relu()), **parts)


UNUSED = {
    "another head": lambda self, h: (self.head(h), self.other(h))[0],
    "the same head twice": lambda self, h: (self.head(h), self.head(h.flip(1)))[0],
    "a part": lambda self, h: self.head(h) + self.other(h)[:, :K] * torch.zeros(K),
}


@pytest.mark.parametrize("name", UNUSED)
def test_results_that_are_no_outputs_beside_normalisation_in_training(name):
    assert_right(made(lambda: beside_a_norm(UNUSED[name])), data(10), mode="train")


def with_mask(use):
    """A network of two arguments, such as attention with a mask that is added to its scores."""
    forward = lambda self, x, mask: self.head(use(self.body(x), mask))  # noqa: E731
    return Named(forward, body=nn.Linear(D, D), head=nn.Linear(D, K))


class Named(Whole):
    """The same by the names of its arguments."""

    def forward(self, x, mask):
        return self.written(self, x, mask)


MASKS = {
    "softmax": lambda h, mask: (h + mask).softmax(1),
    "largest": lambda h, mask: (h + mask).amax(1, keepdim=True) * h,
    "exponential": lambda h, mask: h * mask.exp(),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_with_infinite_entries_are_arguments_like_others(name):
    net, x = made(lambda: with_mask(MASKS[name])), data(8)
    mask = torch.zeros(8, D)
    mask[::2, D - 2 :] = -torch.inf
    found = gram_matrix(net, (x, mask))
    by_name = gram_matrix(net, {"x": x, "mask": mask})
    rows = rows_of(net.double(), x, mask)
    expected = rows @ rows.mT / 8
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12 * expected.abs().max().item())
    assert torch.equal(found, by_name)


@pytest.mark.bad_input
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_tensors_among_several_arguments_are_refused(dtype):
    net, x = made(lambda: with_mask(lambda h, mask: h * mask.abs())), data(4)
    for given in ((x, x.to(dtype)), {"x": x, "mask": x.to(dtype)}, [(x, x.to(dtype)), (x, x.to(dtype))]):
        with pytest.raises(TypeError, match=r"complex tensor among its arguments.*torch\.view_as_real"):
            gram_matrix(net, given)


@pytest.mark.bad_input
def test_an_error_of_a_forward_pass_names_its_line():
    net = made(lambda: Net(lambda self, h: h @ torch.ones(D + 1, D)))
    assert_refused(net, data(8), r"in double precision \(line \d+ of <lambda>: net = made.*ones\(D \+ 1, D\)")


# Buffers that are not dense, and branches on what autograd is asked for


def buffered(buffer, use):
    net = Whole(lambda self, x: self.linear(use(x, self.held)), linear=nn.Linear(D, K))
    net.register_buffer("held", buffer)
    return net


EYE = torch.eye(D) + torch.eye(D).roll(1, 0) / 2
BUFFERS = {
    "coordinates": lambda: buffered(EYE.to_sparse(), lambda x, held: (held @ x.mT).mT),
    "rows": lambda: buffered(EYE.to_sparse_csr(), lambda x, held: (held @ x.mT).mT),
    "without values": lambda: buffered(torch.ones(D, device="meta"), lambda x, held: x * len(held)),
    "of no size": lambda: buffered(torch.ones(0), lambda x, held: x + held.sum()),
}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("name", BUFFERS)
def test_buffers_of_other_kinds_are_what_they_are(name):
    net, meant = made(BUFFERS[name]), made(BUFFERS[name])
    meant.held = torch.ones(D) if net.held.is_meta else net.held.to_dense()
    rows = jacobian(meant, data(8))
    torch.testing.assert_close(gram_matrix(net, data(8)), rows @ rows.mT / 8)


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("kind", ["to_sparse", "to_sparse_csr"])
def test_sparse_edges_behind_a_layer_are_those_of_a_dense_graph(kind):
    edges = torch.eye(8) + torch.eye(8).roll(1, 0) / 2
    rows = jacobian(made(lambda: graph(lambda edges, h: edges @ h, edges)), data(8))
    g = GaussNewton(made(lambda: graph(lambda edges, h: edges @ h, getattr(edges, kind)())), data(8), mode="train")
    torch.testing.assert_close(g.gram(), rows @ rows.mT / 8)
    assert g.largest_eigenvalue().value == pytest.approx(float(torch.linalg.eigvalsh(g.gram())[-1]))


@pytest.mark.bad_input
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_inputs_that_are_not_dense_are_refused_by_their_kind():
    net, x = made(lambda: nn.Linear(D, K)), data(4)
    nested = torch.nested.nested_tensor([x[:1], x[1:]])
    for other, kind in (
        (nested, "nested"),
        (x.to_sparse(), "sparse"),
        (torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "quantised"),
    ):
        for given in (other, [other, other]):
            with pytest.raises(TypeError, match=f"x is {kind}; pass a dense tensor"):
                gram_matrix(net, given)


BRANCHES = {
    "gradients are enabled": lambda self, h: h.sin() if torch.is_grad_enabled() else h.cos(),
    "a weight is trained": lambda self, h: h.sin() if self.body.weight.requires_grad else h.cos(),
    "values are tracked": lambda self, h: h.sin() if h.requires_grad else h.cos(),
    "inference": lambda self, h: h.cos() if torch.is_inference_mode_enabled() else h.sin(),
    "a leaf": lambda self, h: h.cos() if h.is_leaf else h.sin(),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_a_branch_on_gradients_is_the_one_of_training(name):
    assert_right(made(lambda: Net(BRANCHES[name])), data(8), made(lambda: Net(lambda self, h: h.sin())))
