"""What the further experiments on piecewise linear maps say of group norm is what their networks do."""

from itertools import product

import pytest
import torch
from gnbook import results
from gnbook.piecewise_linear_maps import practice
from torch.func import functional_call, jacrev

from tests.pages.pages import prose


def test_scaling_the_weights_of_a_group_does_nearly_nothing():
    """In all networks of the kept table: κ of layer 1 as it is, over that without the constants of the norms."""
    kept = {
        (row["images"], row["seed"]): row["kappa"]
        for row in results.kept("piecewise-linear-maps-further")
        if row["norm"] and str(row["layer"]) == "1"
    }
    falls = []
    for (name, x), seed in product(practice.inputs(100, 2)[0].items(), range(4)):
        ranks, kappas = [], []
        for eps in (1e-5, 0.0):
            net = practice.network(seed, True, 16).double()
            for part in net:
                if isinstance(part, torch.nn.GroupNorm):
                    part.eps = eps
            first = {name: p.detach() for name, p in net[0].named_parameters(prefix="0")}
            few = x[:40].double()
            jacobian = jacrev(lambda some, net=net, few=few: functional_call(net, some, (few,)).flatten())(first)
            s = torch.linalg.svdvals(torch.cat([part.flatten(1) for part in jacobian.values()], 1)).detach()
            ranks.append(int((s > 1e-10 * s[0]).sum()))
            kappas.append((s[0] / s[ranks[-1] - 1]).item() ** 2)
        assert ranks == [220, 216]  # one direction for each group, and four of the biases, which the mean takes away
        assert kappas[0] == pytest.approx(kept[name, seed], rel=1e-3)
        falls.append(kappas[0] / kappas[1])
    said = f"would be {min(falls):.0f} to {round(max(falls), -3):,.0f} times as"
    assert said in prose("notebooks/piecewise-linear-maps-further")
