"""All that is tried as a predictor of the number of training steps, from a network at its start."""

import copy
import math
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor, nn

from gnbook.what_predicts_training import zero_cost
from gnbook.what_predicts_training.curvature import differentiated, drift, sharpness
from gnbook.what_predicts_training.forecasts import fewest_steps
from gnbook.what_predicts_training.spectral import Kernel, alignment, of_spectrum, weighted_residual
from gnlib.diagnosis.preconditioner import NAMED, optimizer_of, preconditioned_gram, preconditioner_of, rule_of
from gnlib.jacobian.gram import gram_of
from gnlib.jacobian.passes import outputs_of, vjp
from gnlib.jacobian.trial import networks_of
from gnlib.losses import loss_of

MEMORY = 4.0  # GiB
SHARE = 0.5  # of the largest stable rate, at which they are taken
OPTIMIZERS = {"descent": "sgd", "momentum": "momentum", "adam": "adam"}


class Start:
    """A network where training starts, with its loss: what several predictors have in common."""

    def __init__(self, module: nn.Module, x: Tensor, y: Tensor, loss: str) -> None:
        self.module, self.x, self.y = module, x, y
        self.networks = networks_of(module, [x], mode="train" if module.training else "eval", memory=MEMORY)
        self.outputs = outputs_of(self.networks, MEMORY)
        self.loss = loss_of(loss, y, self.outputs)
        self.residual = self.loss.gradient(self.outputs)
        self.gradients = vjp(self.networks, MEMORY)(self.residual)

    @cached_property
    def kernel(self) -> Kernel:
        r"""The tangent kernel, :math:`K = \frac1n J J^\top`."""
        return Kernel(gram_of(self.networks, MEMORY), self.loss, self.outputs)

    @cached_property
    def preconditioned(self) -> Kernel:
        r"""The kernel of Adam in its place, :math:`\frac1n J P^{-1} J^\top`.

        P is the root of the diagonal of G, of the size of the gradient, with a floor of 1e-3 of its root mean square.
        """
        leaves = self.networks[0].parameters
        adam = optimizer_of("adam", self.networks[0], leaves, 1.0)
        adam.param_groups[0]["eps"] = 0.0
        factors = preconditioner_of(adam, self.networks, leaves, self.gradients, MEMORY).factors
        return Kernel(preconditioned_gram(self.networks, factors, MEMORY), self.loss, self.outputs)

    def predictors(self, goals: Sequence[float], generator: torch.Generator) -> dict[str, float]:
        r"""Return every predictor but those after real steps, which depend on the optimiser; see :meth:`after`.

        They are of the functions of :mod:`.spectral`, :mod:`.curvature` and :mod:`.zero_cost`. `kappa_loss` is of the
        loss's own matrix, `forecast_<goal>` and `forecast_kp_<goal>` are of :func:`.forecasts.fewest_steps` with
        :attr:`kernel` and with :attr:`preconditioned`. What is not defined is nan. The module is in the mode in which
        it is trained.
        """
        network, kernel, residual = self.networks[0], self.kernel, self.residual
        initial = self.loss.value(self.outputs)
        with differentiated(network, self.loss) as (gradient, product):
            curvature = {
                "sharpness": sharpness(product, len(gradient), generator=generator),
                "gradient_quotient": zero_cost.gradient_quotient(gradient, product(gradient)),
            }
        forecasts = {
            f"{name}_{goal:g}": steps
            for name, frozen in (("forecast", kernel), ("forecast_kp", self.preconditioned))
            for goal, steps in zip(goals, fewest_steps(frozen, goals), strict=True)
        }
        return {
            **of_spectrum(kernel.spectrum[0]),
            "kappa_loss": of_spectrum(kernel.own)["kappa"],
            "alignment": alignment(kernel.matrix, kernel.targets),
            "weighted_residual": weighted_residual(*kernel.spectrum, residual),
            "drift": drift(self.networks, kernel.matrix, initial, self.gradients, MEMORY),
            **curvature,
            "naswot": zero_cost.naswot(self.module, self.x),
            "zico": zero_cost.zico(self.module, self.x, self.y, self.loss.name, generator=generator),
            "synflow": zero_cost.synflow(self.module, self.x),
            "te_nas": zero_cost.te_nas(self.module, self.x),
            "chi_1": zero_cost.chi_1(network, generator=generator),
            "parameters": float(len(gradient)),
            "initial_loss": initial,
            "gradient_norm": gradient.norm().item(),
            **forecasts,
        }

    def after(self, steps: int, optimizer: str) -> dict[str, float]:
        r"""Return what real steps of an optimiser on all samples leave of the loss, and what they make of the kernel.

        The rate is half the largest stable one where the network stands: :math:`1 / \lambda_{\max}` for descent,
        :math:`1.9 / \lambda_{\max}` with momentum of 0.9 and :math:`19 / \lambda_{\max}` for Adam, of the matrix of the
        loss, for Adam preconditioned by P. `loss_after_<steps>` is over the loss before them, inf where it diverged;
        `alignment_after_<steps>` is of the kernel with the targets then, nan where it diverged. Both are nan where the
        loss has no curvature, and so no such rate.
        """
        kernel = self.preconditioned if optimizer == "adam" else self.kernel
        largest, share, aligned = kernel.own[-1].item(), math.nan, math.nan
        if largest > 0:
            module = self._trained(steps, optimizer, largest)
            with torch.no_grad():
                loss = self.loss.value(module(self.x.double()))
            share = loss / self.loss.value(self.outputs) if math.isfinite(loss) else math.inf
            if math.isfinite(loss):
                networks = networks_of(module, [self.x], mode="train" if module.training else "eval", memory=MEMORY)
                aligned = alignment(gram_of(networks, MEMORY), self.kernel.targets)
        return {f"loss_after_{steps}": share, f"alignment_after_{steps}": aligned}

    def _trained(self, steps: int, optimizer: str, largest: float) -> nn.Module:
        """Return a copy of the network after some steps."""
        module, x = copy.deepcopy(self.module).double(), self.x.double()
        made = NAMED[OPTIMIZERS[optimizer]](module.parameters(), lr=1.0)
        made.param_groups[0]["lr"] = SHARE * rule_of(made).limit / largest
        for _ in range(steps):
            outputs = module(x)
            made.zero_grad()
            outputs.backward(self.loss.gradient(outputs.detach()) / len(x))
            made.step()
        return module
