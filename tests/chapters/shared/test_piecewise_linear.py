"""Local affine maps, by products and by automatic differentiation, and the landscape of one layer."""

import math

import mpmath
import pytest
import torch
from torch import nn

from gnlib import gauss_newton_gram, linear_gauss_newton, second_moment
from gnlib.chapters.piecewise_linear_maps import landscape
from gnlib.chapters.piecewise_linear_maps.one_layer import along_line, layer_factors
from gnlib.chapters.piecewise_linear_maps.partition import partition
from gnlib.chapters.shared.local_affine import local_affine, local_affine_in_weights
from gnlib.chapters.shared.piecewise_linear import Kink, Layer, SkipLayer, affine_products, as_layers
from tests.oracles import normal

SHAPES = [  # widths, slopes, skips
    ([2, 3], [0.0], [0.0]),
    ([1, 1, 1], [0.1, 0.1], [1.0, 1.0]),
    ([2, 3, 4, 4], [0.1, 0.1, 0.1], [0.0, 0.0, 0.0]),
    ([2, 6, 6, 6, 6], [0.1, 0.1, 0.1, 0.1], [0.0, 0.0, 0.7, 0.0]),
    ([4, 4, 4], [-1.0, -1.0], [1.0, 0.5]),
    ([3, 5, 2], [0.0, 1.0], [0.0, 0.0]),
    ([5, 1, 5], [-0.5, 1.0], [0.0, 0.0]),
    ([3, 3, 3, 3], [1.0, 1.0, 1.0], [0.0, -1.0, 2.0]),
    ([6, 20, 3], [0.0, 0.0], [0.0, 0.0]),
]
cases = pytest.mark.parametrize("case", SHAPES, ids=lambda c: "-".join(map(str, c[0])))
seeds = pytest.mark.parametrize("seed", range(4))


def network(case, seed):
    widths, slopes, skips = case
    return nn.Sequential(
        *(
            SkipLayer(normal(out, fan_in, seed=10 * seed + i), normal(out, seed=500 + 10 * seed + i), slope, skip)
            for i, (fan_in, out, slope, skip) in enumerate(zip(widths, widths[1:], slopes, skips, strict=False))
        )
    )


def close(found, expected, scale=1.0):
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12 * float(scale))


@cases
@seeds
def test_products_and_jacobian_give_the_same_piece(case, seed):
    net, x = network(case, seed), normal(case[0][0], seed=900 + seed)
    a, b = affine_products(as_layers(net), x), local_affine(net, x)
    scale = 1 + a.matrix.abs().max() + a.offset.abs().max() + a.normals.abs().sum() / max(a.normals.numel(), 1)
    for found, expected in ((a.matrix, b.matrix), (a.offset, b.offset), (a.normals, b.normals), (a.levels, b.levels)):
        close(found, expected, scale)
    assert all(torch.equal(s, t) for s, t in zip(a.slopes, b.slopes, strict=True))
    close(a(x), net(x[None])[0].detach(), scale * (1 + x.norm()))


@cases
def test_the_products_in_fifty_digits(case):
    net, x = network(case, 0), normal(case[0][0], seed=7)
    piece = affine_products(as_layers(net), x)
    with mpmath.workdps(50):
        h, matrix = mpmath.matrix(x.tolist()), mpmath.eye(len(x))
        for weight, bias, slope, skip in as_layers(net):
            w = mpmath.matrix(weight.tolist())
            t = w * h + mpmath.matrix(bias.tolist())
            d = mpmath.diag([1 if value > 0 else mpmath.mpf(slope) for value in t])
            factor = d * w + skip * mpmath.eye(w.rows) if skip else d * w
            h, matrix = d * t + (skip * h if skip else 0 * t), factor * matrix
        rows = [[float(matrix[i, j]) for j in range(matrix.cols)] for i in range(matrix.rows)]
        exact = torch.tensor(rows, dtype=torch.float64)
        values = torch.tensor([float(v) for v in h], dtype=torch.float64)
    close(piece.matrix, exact, 10 * (1 + exact.abs().max()))
    close(piece(x), values, 10 * (1 + exact.abs().max()) * (1 + x.norm()))


@cases
@seeds
def test_the_piece_is_the_network_in_its_region_and_another_one_beyond_the_border(case, seed):
    net, x = network(case, seed), normal(case[0][0], seed=900 + seed)
    piece = affine_products(as_layers(net), x)
    for direction in normal(6, len(x), seed=seed):
        far = min(piece.exit(x, direction), 10.0)
        inside, beyond = x + 0.999 * far * direction, x + 1.001 * far * direction
        scale = 1 + piece.matrix.abs().max() * (1 + inside.norm()) + piece.offset.abs().max()
        assert piece.contains(inside)
        close(piece(inside), net(inside[None])[0].detach(), 10 * scale)
        if far < 10:
            assert not piece.contains(beyond)
            other = affine_products(as_layers(net), beyond)
            changed = sum((a != b).sum() for a, b in zip(piece.slopes, other.slopes, strict=True))
            assert changed >= 1
            border = x + far * direction  # continuous: both pieces agree there
            torch.testing.assert_close(piece(border), other(border), rtol=1e-9, atol=1e-9 * scale.item())


def test_layers_of_a_torch_module():
    net = nn.Sequential(
        nn.Flatten(),
        nn.Linear(4, 3),
        nn.Dropout(0.0),
        nn.LeakyReLU(0.2),
        nn.Sequential(nn.Linear(3, 3, bias=False), nn.Identity(), Kink(-1.0)),
        nn.Linear(3, 2),
        nn.ReLU(),
        nn.Linear(2, 2),
    ).double()
    layers = as_layers(net)
    assert [layer.slope for layer in layers] == [0.2, -1, 0, 1]
    assert [tuple(layer.weight.shape) for layer in layers] == [(3, 4), (3, 3), (2, 3), (2, 2)]
    assert not layers[1].bias.any() and not any(layer.skip for layer in layers)
    x = normal(4, seed=1)
    close(affine_products(layers, x)(x), net(x[None])[0].detach())
    close(local_affine(net, x).matrix, affine_products(layers, x).matrix)


class Residual(nn.Module):
    def __init__(self, inplace):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 1, 3, padding=1)
        self.activation = nn.ReLU(inplace=inplace)  # used twice

    def forward(self, x):
        return self.activation(x + self.second(self.activation(self.first(x)))).flatten(1)


@pytest.mark.parametrize("inplace", [False, True])
def test_a_module_of_any_shape(inplace):
    torch.manual_seed(0)
    net, x = Residual(inplace), normal(1, 4, 4, seed=2)
    state = {name: p.clone() for name, p in net.named_parameters()}
    piece = local_affine(net, x)
    double = Residual(False).double()
    double.load_state_dict(net.state_dict())
    (jacobian,) = torch.autograd.functional.jacobian(lambda p: double(p[None])[0], (x,))
    close(piece.matrix, jacobian.flatten(1), jacobian.abs().max())
    assert piece.normals.shape == (3 * 16 + 16, 16) and [len(s) for s in piece.slopes] == [48, 16]
    walls = torch.autograd.functional.jacobian(lambda p: double.first(p[None]).flatten(), x).flatten(1)
    close(piece.normals[:48].abs(), walls.abs(), walls.abs().max())
    assert all(torch.equal(p, state[name]) and p.dtype == torch.float32 for name, p in net.named_parameters())
    assert not any(len(m._forward_pre_hooks) for m in net.modules())


@cases
@seeds
def test_the_factors_around_each_layer_make_up_the_outputs(case, seed):
    net, x = network(case, seed), normal(5, case[0][0], seed=900 + seed)
    layers, y = as_layers(net), net(x).detach()
    for index, layer in enumerate(layers):
        f = layer_factors(layers, index, x)
        scale = 1 + y.abs().max() + f.offset.abs().max() + f.product.abs().max() * layer.weight.norm() * f.z.norm()
        close(torch.einsum("nkm,md,nd->nk", f.product, layer.weight, f.z) + f.offset, y, scale)
        name = f"{index}.weight"
        piece = local_affine_in_weights(net, name, x)
        rows = torch.einsum("nkm,nd->nkmd", f.product, f.z).flatten(0, 1).flatten(1)
        close(piece.matrix, rows, 10 * (1 + rows.abs().max()))
        close(piece.offset.view_as(y), f.offset, scale)


@cases
@seeds
def test_the_border_along_a_line_of_weights_is_that_of_the_region(case, seed):
    net, x = network(case, seed), normal(4, case[0][0], seed=900 + seed)
    layers = as_layers(net)
    for index, layer in enumerate(layers):
        direction = normal(*layer.weight.shape, seed=seed)
        stretches = along_line(layers, index, x, direction, 3.0)
        exit = local_affine_in_weights(net, f"{index}.weight", x).exit(layer.weight.flatten(), direction.flatten())
        assert stretches[0].stop == pytest.approx(min(exit, 3.0), rel=1e-9)
        for stretch in stretches:
            for t in (stretch.start, (stretch.start + stretch.stop) / 2, stretch.stop):
                moved = torch.func.functional_call(net, {f"{index}.weight": layer.weight + t * direction}, x).detach()
                scale = 10 * (1 + moved.abs().max() + stretch.offset.abs().max() + stretch.slope.abs().max())
                close(stretch.offset + t * stretch.slope, moved, scale)


def test_a_line_through_a_border_by_hand():
    layers = [Layer(torch.eye(1).double(), torch.tensor([-0.5]).double(), 0.0)]
    one = torch.ones(1, 1).double()
    stretches = along_line(layers, 0, one, -one, 2.0)  # max(0, 1 - t - 1/2)
    assert [(s.start, s.stop) for s in stretches] == [(0, 0.5), (0.5, 2)]
    assert [s.loss(one) for s in stretches] == [(0.25, 1, 1), (1, 0, 0)]


def test_a_line_that_starts_on_a_border_goes_on_in_its_direction():
    layers = [Layer(torch.zeros(1, 1).double(), torch.zeros(1).double(), 0.1)]
    one = torch.ones(1, 1).double()
    for sign, slope in ((1, 1.0), (-1, -0.1)):
        (stretch,) = along_line(layers, 0, one, sign * one)
        assert stretch.slope.item() == pytest.approx(slope)


def test_two_units_that_vanish_together_make_one_border():
    layers = [Layer(torch.ones(2, 1).double(), torch.zeros(2).double(), 0.0)]
    one = torch.ones(1, 1).double()
    assert [s.stop for s in along_line(layers, 0, one, -torch.ones(2, 1).double(), 3.0)] == [1, 3]


def test_the_block_of_a_linear_network_is_a_term_of_the_kronecker_sum():
    """Part I: A_l A_l^T kron S^1/2 B_l^T B_l S^1/2."""
    weights, x = [normal(4, 3, seed=1), normal(5, 4, seed=2), normal(2, 5, seed=3)], normal(6, 3, seed=4)
    layers = [Layer(w, torch.zeros(len(w)).double()) for w in weights]
    operator = linear_gauss_newton(weights, second_moment(x))
    for index, (left, right) in enumerate(zip(operator.left, operator.right, strict=True)):
        f = layer_factors(layers, index, x)
        term = torch.linalg.eigvalsh(torch.kron(left.contiguous(), right.contiguous())).flip(0)
        form = torch.linalg.eigvalsh(landscape.quadratic_form(f.product, f.z)).flip(0)
        size = min(len(term), len(form))
        torch.testing.assert_close(form[:size], term[:size], rtol=0, atol=1e-11 * term[0].item())
        product, data = torch.linalg.svdvals(f.product[0]), torch.linalg.svdvals(f.z)
        product, data = (s[s > 1e-10 * s[0]] for s in (product, data))
        kappa = (product[0] / product[-1] * data[0] / data[-1]).item()
        if f.product.shape[1] >= f.product.shape[2]:
            assert landscape.landscape_condition(f.product, f.z) == pytest.approx(kappa, rel=1e-9)


@cases
def test_the_blocks_of_all_parameters_add_up_to_the_gauss_newton_matrix(case):
    net, x = network(case, 1), normal(4, case[0][0], seed=3)
    whole, total = gauss_newton_gram(net, x), 0
    for name, _ in net.named_parameters():
        block = local_affine_in_weights(net, name, x).matrix
        total = total + block @ block.mT / len(x)
    close(total, whole, 10 * whole.abs().max())


def dense_form(products, z):
    n, _, m = products.shape
    d = z.shape[1]
    form = torch.zeros(m * d, m * d).double()
    for i in range(n):
        for a in range(m):
            for b in range(m):
                for p in range(d):
                    for q in range(d):
                        form[a * d + p, b * d + q] += (products[i, :, a] @ products[i, :, b]) * z[i, p] * z[i, q] / n
    return form


@pytest.mark.parametrize("n, k, m, d", [(1, 1, 1, 1), (3, 2, 3, 2), (2, 3, 2, 4), (5, 1, 2, 3)])
def test_the_landscape_functions_are_their_formulas(n, k, m, d):
    products, z = normal(n, k, m, seed=1), normal(n, d, seed=2)
    form = dense_form(products, z)
    close(landscape.quadratic_form(products, z), form, form.abs().max())
    w = normal(m, d, seed=3)
    expected = sum((products[i] @ w @ z[i]).square().sum() for i in range(n)) / n
    assert w.flatten() @ form @ w.flatten() == pytest.approx(expected.item(), rel=1e-12)
    printed = landscape.riedi_lemma_8(products[0], z[0])
    assert printed.shape == (d * k, d * m)
    close(printed, torch.kron(z[0].diag(), products[0].contiguous()))
    smallest = [torch.linalg.eigvalsh(p.mT @ p)[0].clamp_min(0) for p in products]
    largest = [torch.linalg.eigvalsh(p.mT @ p)[-1] for p in products]
    for found, values in zip(landscape.riedi_lemma_10(products, z), (smallest, largest), strict=True):
        by_hand = sum(row**2 * value for row, value in zip(z, values, strict=True)) / n
        torch.testing.assert_close(found, by_hand, rtol=1e-9, atol=1e-12)
    for found, values in zip(landscape.landscape_bounds(products, z), (smallest, largest), strict=True):
        by_hand = torch.linalg.eigvalsh(sum(v * torch.outer(r, r) for r, v in zip(z, values, strict=True)) / n)
        torch.testing.assert_close(found, by_hand.flip(0).repeat_interleave(m), rtol=1e-9, atol=1e-12)
    means = z.square().mean(0).sqrt()
    if k >= m:
        corollary = (max(largest) / min(smallest)).sqrt() * means.max() / means.min()
        assert landscape.riedi_corollary_11(products, z) == pytest.approx(corollary.item(), rel=1e-6)
    else:
        assert landscape.riedi_corollary_11(products, z) == math.inf


def test_a_layer_that_hands_nothing_on_has_a_form_of_zeros():
    products, z = torch.zeros(2, 3, 2), normal(2, 2, seed=1)
    assert not landscape.quadratic_form(products, z).any()
    assert not torch.stack(landscape.landscape_bounds(products, z)).any()
    assert not torch.stack(landscape.riedi_lemma_10(products, z)).any()
    assert landscape.landscape_condition(products, z) == landscape.riedi_corollary_11(products, z) == math.inf


def test_one_sample_one_output_one_unit_and_one_input():
    products, z = torch.full((1, 1, 1), -3.0), torch.full((1, 1), 2.0)
    assert [bound.tolist() for bound in landscape.landscape_bounds(products, z)] == [[36], [36]]
    assert landscape.quadratic_form(products, z).item() == landscape.quadratic_form_gram(products, z).item() == 36
    assert landscape.landscape_condition(products, z) == landscape.riedi_corollary_11(products, z) == 1


def test_inputs_that_are_always_zero_are_left_out_of_corollary_11():
    products, z = torch.ones(2, 1, 1), torch.tensor([[3.0, 0.0, 1.0], [3.0, 0.0, -1.0]])
    assert landscape.riedi_corollary_11(products, z) == pytest.approx(3)


BAD_LAYERS = [
    (nn.Sequential(nn.Linear(2, 2), nn.Tanh()), "Tanh"),
    (nn.Sequential(nn.Linear(2, 2), nn.GELU()), "GELU"),
    (nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)), "Dropout"),
    (nn.Sequential(nn.ReLU(), nn.Linear(2, 2)), "does not follow a Linear layer"),
    (nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.ReLU()), "does not follow a Linear layer"),
    (nn.Sequential(nn.Linear(2, 2), nn.LeakyReLU(2.0)), "slope is 2.0"),
    (nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(2, 2)), "layer 1 takes 2 inputs but layer 0 gives 3"),
    (nn.Sequential(), "there is no layer"),
]


@pytest.mark.bad_input
@pytest.mark.parametrize("module, message", BAD_LAYERS, ids=lambda v: v if isinstance(v, str) else "")
def test_modules_that_are_no_list_of_layers_are_refused(module, message):
    with pytest.raises(ValueError, match=message):
        as_layers(module)


class Hidden(nn.Module):
    def __init__(self, bend):
        super().__init__()
        self.linear, self.bend = nn.Linear(3, 3), bend

    def forward(self, x):
        return self.bend(self.linear(x))


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(self.linear(x))


@pytest.mark.bad_input
@pytest.mark.parametrize("activation", [nn.Tanh(), nn.Softplus(), nn.MaxPool1d(3), nn.Hardtanh(), nn.LayerNorm(3)])
def test_activations_that_are_not_of_the_form_are_refused_by_name(activation):
    with pytest.raises(ValueError, match=f"1 \\({type(activation).__name__}\\) is not known to be affine"):
        local_affine(nn.Sequential(nn.Linear(3, 3), activation), torch.ones(3))


@pytest.mark.bad_input
@pytest.mark.parametrize("bend", [torch.tanh, torch.relu, torch.square, nn.functional.softplus, torch.abs])
def test_activations_that_are_hidden_in_the_forward_pass_are_noticed(bend):
    torch.manual_seed(0)
    with pytest.raises(ValueError, match="not affine in the region"):
        local_affine(Hidden(bend), 3 * torch.ones(3))


@pytest.mark.bad_input
def test_a_parameter_that_is_used_twice_is_noticed():
    torch.manual_seed(0)
    net, x = Twice(), torch.ones(2, 3)
    local_affine(net, x[0])
    with pytest.raises(ValueError, match="a parameter is used more than once"):
        local_affine_in_weights(net, "linear.weight", x)


@pytest.mark.bad_input
@pytest.mark.parametrize("slope", [-1.01, 1.5, math.nan, math.inf])
def test_slopes_outside_minus_one_to_one_are_refused(slope):
    for make in (Kink, lambda slope: SkipLayer(torch.eye(2), torch.ones(2), slope)):
        with pytest.raises(ValueError, match=r"one from -1 \(absolute value\) over 0 \(ReLU\) to 1"):
            make(slope)


@pytest.mark.bad_input
@pytest.mark.parametrize("slope", [-1.01, 1.5, math.nan])
def test_layers_with_such_slopes_are_refused_wherever_they_go(slope):
    layers, x = [Layer(torch.eye(2), torch.ones(2), slope)], torch.ones(1, 2)
    calls = (
        lambda: affine_products(layers, x[0]),
        lambda: layer_factors(layers, 0, x),
        lambda: along_line(layers, 0, x, torch.eye(2)),
        lambda: partition(layers),
    )
    for call in calls:
        with pytest.raises(ValueError, match=r"slope is .*; one from -1 \(absolute value\) over 0 \(ReLU\) to 1"):
            call()


@pytest.mark.bad_input
def test_points_on_a_border_are_said_to_be():
    net = nn.Sequential(SkipLayer(torch.eye(2), torch.zeros(2), 0.0))
    on_border = torch.tensor([1.0, 0.0])
    for find in (lambda: affine_products(as_layers(net), on_border), lambda: local_affine(net, on_border)):
        with pytest.raises(ValueError, match=r"lies on the border of a region.*1 of the pre-activations.*number 1\)"):
            find()
    with pytest.raises(ValueError, match="lies on the border"):
        zero = nn.Sequential(SkipLayer(torch.zeros(2, 2), torch.zeros(2), 0.0))
        local_affine_in_weights(zero, "0.weight", torch.ones(1, 2))


def test_a_unit_that_vanishes_in_the_whole_region_makes_no_border():
    net = nn.Sequential(SkipLayer(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.zeros(2), 0.0))
    piece = affine_products(as_layers(net), torch.tensor([1.0, 0.0]).double())
    assert piece.exit(torch.tensor([1.0, 0.0]).double(), torch.tensor([-1.0, 5.0]).double()) == 1
    assert local_affine(net, torch.tensor([1.0, 0.0])).contains(torch.tensor([0.5, -7.0]).double())


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: SkipLayer(torch.ones(2, 3), torch.ones(3)), r"\(2, 3\) and \(3,\); \(out, in\) and \(out,\)"),
        (lambda: SkipLayer(torch.ones(2, 3), torch.ones(2), 0.0, 1.0), "a skip needs a square weight"),
        (lambda: SkipLayer(torch.eye(2), torch.ones(2), 0.0, math.nan), "skip is nan"),
        (lambda: affine_products(two(), torch.ones(3)), r"x has shape \(3,\); one point of shape \(2,\)"),
        (lambda: layer_factors(two(), 2, torch.ones(1, 2)), "index is 2; there are layers 0 to 1"),
        (lambda: layer_factors(two(), -1, torch.ones(1, 2)), "index is -1"),
        (lambda: layer_factors(two(), 0, torch.ones(1, 3)), "x has 3 features but the first layer takes 2"),
        (lambda: along_line(two(), 0, torch.ones(1, 2), torch.ones(2, 3)), r"\(2, 3\); \(2, 2\) was expected"),
        (lambda: along_line(two(), 0, torch.ones(1, 2), torch.eye(2), -1.0), "stop is -1.0; a positive number"),
        (lambda: landscape.quadratic_form(torch.ones(2, 2), torch.ones(2, 2)), r"\(n, k, m\) and \(n, d\)"),
        (lambda: landscape.quadratic_form(torch.ones(3, 2, 2), torch.ones(2, 2)), r"\(n, k, m\) and \(n, d\)"),
        (lambda: landscape.riedi_lemma_8(torch.ones(2), torch.ones(2)), r"\(n, k, m\) and \(n, d\)"),
        *(
            (lambda call=call: call(torch.ones(2, 1, 1), torch.zeros(2, 2)), "z is zero")
            for call in (
                landscape.landscape_bounds,
                landscape.landscape_condition,
                landscape.riedi_lemma_10,
                landscape.riedi_corollary_11,
            )
        ),
        *(
            (lambda call=call: call(torch.ones(3, 2, 2), torch.ones(2, 2)), r"\(3, 2, 2\) and \(2, 2\); \(n, k, m\)")
            for call in (
                landscape.landscape_bounds,
                landscape.landscape_condition,
                landscape.riedi_lemma_10,
                landscape.riedi_corollary_11,
            )
        ),
        (
            lambda: affine_products([Layer(torch.ones(2, 3), torch.ones(2), 0.0, 1.0)], torch.ones(3)),
            "a skip needs a square",
        ),
        (lambda: local_affine_in_weights(nn.Linear(2, 2), "w", torch.ones(1, 2)), "name is 'w'; the parameters that"),
    ],
)
def test_other_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.bad_input
def test_what_is_not_a_module_is_refused():
    for call in (lambda: as_layers([nn.ReLU()]), lambda: local_affine(torch.relu, torch.ones(2))):
        with pytest.raises(TypeError, match=r"pass a torch\.nn\.Module"):
            call()


def two():
    return [Layer(torch.eye(2).double(), torch.ones(2).double(), 0.0)] * 2
