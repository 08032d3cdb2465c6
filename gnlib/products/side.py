r"""The smaller of the two sides from which a Gauss-Newton matrix is seen, and the residual on it.

On the side of the parameters it is :math:`G = \frac1N J^\top H J`, of size p; on the side of the outputs, with
:math:`H = R R^\top`, :math:`K = \frac1N R^\top J J^\top R`. Their eigenvalues are the same but for zeros. What is left
of the loss is a vector on each: with the shortest u for which :math:`R u` is the gradient by the outputs, u on the one,
and on the other the gradient by the parameters, :math:`\frac1N J^\top R u`.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Literal

import torch
from jaxtyping import Float, Num
from torch import Tensor, distributed, nn

from gnlib.checks import EPS, check_versions, versions_of
from gnlib.jacobian.inputs import Inputs
from gnlib.jacobian.network import Mode
from gnlib.jacobian.plan import check_memory
from gnlib.operators import SymmetricOperator
from gnlib.origin import Origin, origin_of
from gnlib.products.curvature import Curvature, Own, Rooted, curvature_of
from gnlib.products.parts import Part, tensors_of
from gnlib.products.passes import Passes, first_of, on_first
from gnlib.products.trial import passes_of
from gnlib.refused import Refused


def is_shared() -> bool:
    """Whether the samples are spread over processes of `torch.distributed`, as under torchrun."""
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def over_all(total: Tensor) -> Tensor:
    """Return the sum over all processes, of which each has samples of its own."""
    if is_shared():
        distributed.all_reduce(total)
    return total


def summed(gradients: Iterable[Tensor]) -> Tensor:
    """Return the sum over the parts of the data, and over all processes; that of one part in its own precision."""
    total = reduce(lambda total, gradient: total.double().add_(gradient), gradients)
    return over_all(total.double()) if is_shared() else total


def number_over_all(value: float, device: torch.device) -> float:
    """Return the sum of a number over all processes."""
    return float(over_all(torch.tensor(value, dtype=torch.float64, device=device))) if is_shared() else value


class _Products(SymmetricOperator):
    """Products that are counted, each in the precision of its vector."""

    _product: Callable[[Tensor], Tensor]

    def __init__(self, passes: Passes, curvature: Curvature, weight: float, size: int) -> None:
        super().__init__(size, torch.float64, passes.device)
        self._passes, self._curvature, self._weight = passes, curvature, weight
        self.products = 0

    def matmul(self, v: Float[Tensor, " p *columns"]) -> Float[Tensor, " p *columns"]:
        if v.ndim > 1:
            return torch.stack([self.matmul(column) for column in v.unbind(-1)], -1)
        self.products += 1
        return self._product(v).to(torch.promote_types(v.dtype, torch.float32)).div_(self._weight)


class ByParameters(_Products):
    r"""The matrix :math:`\frac1N J^\top H J`, by its products with vectors of the length of the parameters."""

    def _product(self, v: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
        def of(part: Part) -> Float[Tensor, " p"]:
            return self._passes.push_and_pull(part, v, lambda f, change: self._curvature.product(f, part.y, change))[1]

        return summed(map(of, self._passes.parts))


class ByOutputs(_Products):
    r"""The matrix :math:`\frac1N R^\top J J^\top R`, by its products with vectors of the length of all outputs."""

    def __init__(self, passes: Passes, curvature: Rooted, weight: float, shapes: list[torch.Size]) -> None:
        super().__init__(passes, curvature, weight, sum(map(math.prod, shapes)))
        self._root, self._shapes = curvature, shapes

    def _product(self, v: Float[Tensor, " r"]) -> Float[Tensor, " r"]:
        pulled = self.pulled(v)
        changes = (self._passes.push(part, pulled) for part in self._passes.parts)
        pairs = zip(self._passes.parts, changes, strict=True)
        return torch.cat([self._root.root_t(f, part.y, c).flatten().double() for part, (f, c) in pairs])

    def pulled(self, v: Float[Tensor, " r"]) -> Float[Tensor, " p"]:
        """Return `J^T R v`."""

        def of(part: Part, piece: Tensor, shape: torch.Size) -> Float[Tensor, " p"]:
            own = piece.view(shape).to(self._passes.dtype)
            return self._passes.pull(part, lambda f: self._root.root(f, part.y, own))[1]

        pieces = v.split([*map(math.prod, self._shapes)])
        return summed(map(of, self._passes.parts, pieces, self._shapes))


@dataclass(frozen=True, eq=False)
class Side:
    """A Gauss-Newton matrix, from its smaller side."""

    passes: Passes
    curvature: Curvature  # of the loss
    shapes: list[torch.Size]  # of the outputs of each part
    weight: float  # N, by which sums are divided
    versions: dict[str, int]  # of the parameters, as they were

    def check_unchanged(self) -> None:
        """Refuse a module whose parameters were changed since this was made."""
        check_versions(self.versions, versions_of(self.passes.module, buffers=False))

    @property
    def name(self) -> Literal["outputs", "parameters"]:
        """Which side it is: of the outputs if they are fewer, in one process, and the loss has a root that is known."""
        fewer = not is_shared() and self.rows < self.passes.size
        return "outputs" if fewer and isinstance(self.curvature, Rooted) else "parameters"

    @property
    def rows(self) -> int:
        """Number of outputs of all samples."""
        return sum(map(math.prod, self.shapes))

    @cached_property
    def operator(self) -> ByParameters | ByOutputs:
        """The matrix, by its products with vectors."""
        return self._matrix(self.passes, self.shapes, self.weight)

    def _matrix(self, passes: Passes, shapes: list[torch.Size], weight: float) -> ByParameters | ByOutputs:
        if self.name == "outputs":
            assert isinstance(self.curvature, Rooted)
            return ByOutputs(passes, self.curvature, weight, shapes)
        return ByParameters(passes, self.curvature, weight, passes.size)

    @cached_property
    def loss(self) -> float:
        """The loss, as the module is."""
        values = (self.curvature.value(self.passes.outputs(part), part.y) for part in self.passes.parts)
        return number_over_all(sum(values), self.passes.device) / self.weight

    @cached_property
    def residual(self) -> tuple[Float[Tensor, " s"], float]:
        r"""The residual on this side, and :math:`\lVert u \rVert^2`."""
        curvature = self.curvature
        if not isinstance(curvature, Rooted):
            known = "With dtype= it is known for 'mse' and 'cross_entropy' what training waits for"
            remedy = "pass one of these, or leave dtype= out."
            raise Refused("needs-matrix", f"{known}, and the loss is {curvature.name}; {remedy}")
        if self.name == "outputs":
            parts = self.passes.parts
            u = torch.cat([curvature.residual(self.passes.outputs(part), part.y).flatten() for part in parts])
            return u, float(u @ u)
        square = 0.0

        def of(part: Part) -> Float[Tensor, " p"]:
            nonlocal square
            f, gradient = self.passes.pull(part, lambda f: curvature.gradient(f, part.y))
            square += float(curvature.residual(f, part.y).square().sum())
            return gradient

        total = summed(map(of, self.passes.parts)).double()
        return total.div_(self.weight), number_over_all(square, self.passes.device)

    @property
    def words(self) -> str:
        """What it is, in words."""
        samples = sum(part.samples for part in self.passes.parts)
        name, dtype = type(self.passes.module).__name__, str(self.passes.dtype).removeprefix("torch.")
        counts = f"{samples:,} samples, {self.rows:,} outputs, {self.passes.size:,} parameters"
        return f"{name}, {counts}, {self.curvature.name}, {dtype}"

    @property
    def knows_residual(self) -> bool:
        """Whether there are targets, and a loss whose residual is known."""
        return isinstance(self.curvature, Rooted) and self.passes.parts[0].y is not None

    def by_layer(self, v: Float[Tensor, " s"]) -> dict[str, float]:
        """Return what each layer has of the squared length of an eigenvector, taken to the parameters."""
        w = self.operator.pulled(v).double() if isinstance(self.operator, ByOutputs) else v
        pieces = w.split([p.numel() for p in self.passes.parameters.values()])
        shares: dict[str, float] = defaultdict(float)
        for name, piece in zip(self.passes.parameters, pieces, strict=True):
            shares[name.rpartition(".")[0]] += float(piece.square().sum() / w.square().sum())
        return dict(shares)

    @cached_property
    def error(self) -> float:
        """The relative error of a product, measured against double precision on the first samples."""
        if self.passes.dtype == torch.float64:
            return EPS
        first = [torch.Size((first_of(self.passes).samples, *self.shapes[0][1:]))]

        def product(dtype: torch.dtype) -> Tensor:
            operator = self._matrix(on_first(self.passes, dtype), first, 1.0)
            v = torch.randn(operator.shape[0], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
            return operator @ v.to(operator.device)

        single, double = product(self.passes.dtype), product(torch.float64)
        return float((single - double).norm() / double.norm())

    @property
    def origin(self) -> Origin:
        """Digests of the data and of the parameters, in a process its own samples."""
        passes = self.passes
        x, y = zip(*((part.x, part.y) for part in passes.parts), strict=True)
        return origin_of(passes.module, [*x], [*y], passes.dtype, buffers=passes.mode != "train")


def side_of(
    module: nn.Module,
    x: Inputs,
    y: Any,
    loss: str | Callable[[Tensor, Any], Tensor] = "mse",
    *,
    output: Callable[..., Tensor] | None = None,
    mode: Mode | None = None,
    memory: float = 4.0,
    dtype: torch.dtype = torch.float64,
) -> Side:
    """Return the smaller side of a module on its data, after trying it, and a pass over all of them."""
    check_memory(memory)
    curvature, versions = curvature_of(loss), versions_of(module, buffers=False)
    passes = passes_of(module, x, y, curvature, output=output, mode=mode, memory=memory, dtype=dtype)
    return side_by(passes, curvature, versions)


def side_by(passes: Passes, curvature: Curvature, versions: dict[str, int]) -> Side:
    """Return the smaller side of passes that were tried, after a pass over all data."""
    shapes, weight, before, curved = [], 0.0, 0, False
    for i, part in enumerate(passes.parts):
        f = passes.outputs(part)
        if (bad := _not_finite(f)) is not None:
            given = any(_not_finite(x[bad : bad + 1]) is not None for x in tensors_of(part.x))
            where = f"in part {i} of {len(passes.parts)} of the data, first for sample {before + bad}"
            which = "is not finite; leave it out" if given else "is finite"
            raise Refused("not-finite", f"The outputs have NaN or infinite entries {where}, whose input {which}.")
        rooted = isinstance(curvature, Rooted) and isinstance(part.y, Tensor)
        if rooted and (bad := _not_finite(part.y)) is not None:
            where = f"first for sample {before + bad}; leave it out."
            raise Refused("not-finite", f"y has NaN or infinite entries, {where}")
        shapes.append(f.shape)
        weight += curvature.weight(f, part.y)
        curved |= not isinstance(curvature, Own) or curvature.is_curved(f, part.y)
        before += part.samples
    weight = number_over_all(weight, f.device)
    if not weight:
        raise Refused("empty", "No token or sample counts: all targets are ignored.")
    if not number_over_all(float(curved), f.device):
        what = "has no second derivative by the outputs, and its Gauss-Newton matrix is 0; pass another, such as 'mse'."
        raise Refused("no-curvature", f"loss {curvature.name} {what}")
    return Side(passes, curvature, shapes, weight, versions)


def _not_finite(of_samples: Num[Tensor, "n ..."]) -> int | None:
    """Return the first sample with an entry that is NaN or infinite, if there is one."""
    bad = (~torch.isfinite(of_samples)).reshape(len(of_samples), -1).any(1)
    return int(bad.nonzero()[0]) if bad.any() else None
