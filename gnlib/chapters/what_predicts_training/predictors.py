"""All that is tried as a predictor of the number of training steps, from a network at its start."""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gnlib.chapters.what_predicts_training import zero_cost
from gnlib.chapters.what_predicts_training.curvature import differentiated, sharpness
from gnlib.chapters.what_predicts_training.forecasts import fewest_steps
from gnlib.chapters.what_predicts_training.spectral import alignment, of_spectrum, weighted_residual
from gnlib.diagnosis.drift import drift
from gnlib.diagnosis.inputs import networks_on
from gnlib.diagnosis.linearised import outputs_of, pull
from gnlib.diagnosis.losses import Loss, loss_of
from gnlib.diagnosis.measured import through
from gnlib.diagnosis.preconditioner import NAMED, optimizer_of, preconditioned_gram, preconditioner_of, rule_of
from gnlib.modules.gram import gram_of

MEMORY = 4.0  # GiB
REAL_STEPS = 20
SHARE = 0.5  # of the largest stable rate, at which they are taken
OPTIMIZERS = {"descent": "sgd", "momentum": "momentum", "adam": "adam"}
SLOWER = {
    "kappa": 1,
    "largest": 1,
    "smallest": -1,
    "trace_over_largest": -1,
    "effective_rank": -1,
    "kappa_loss": 1,
    "alignment": -1,
    "weighted_residual": 1,
    "drift": 1,
    "sharpness": 1,
    "gradient_quotient": 1,
    "naswot": -1,
    "zico": -1,
    "synflow": -1,
    "te_nas": 1,
    "chi_1": 1,
    "parameters": -1,
    "initial_loss": 1,
    "gradient_norm": -1,
    "loss_after_20": 1,
    "forecast": 1,
    "forecast_kp": 1,
}
"""The sign of a change in each predictor that is said to mean slower training; the forecasts have one key a goal."""


def predict(
    module: nn.Module,
    x: Tensor,
    y: Tensor,
    loss: str,
    *,
    optimizer: str,
    goals: Sequence[float],
    generator: torch.Generator,
) -> dict[str, float]:
    r"""Return every predictor of a network, which is left unchanged.

    - `kappa`, `largest`, `smallest`, `trace_over_largest`, `effective_rank`: of the Gram matrix :math:`K = \frac1n J
      J^\top` (:func:`of_spectrum`); `kappa_loss`: of the loss's own matrix (:func:`gnlib.loss_gram`)
    - `alignment`, `weighted_residual`: where targets and residual lie in K (:mod:`.spectral`)
    - `drift`: how far K moves while the loss falls (:func:`gnlib.diagnosis.drift.drift`, along plain gradients)
    - `sharpness`: the largest eigenvalue of the Hessian of the loss (:func:`.curvature.sharpness`)
    - `gradient_quotient`, `naswot`, `zico`, `synflow`, `te_nas`, `chi_1`: :mod:`.zero_cost`
    - `parameters`, `initial_loss`, `gradient_norm`: what anybody could say
    - `loss_after_20`: :func:`loss_after`
    - `forecast_<goal>`, `forecast_kp_<goal>`, in the order of the goals, each written as by `f"{goal:g}"`: the fewest
      steps of the linear model (:func:`.forecasts.fewest_steps`) with the kernel K, and with :math:`\frac1n J P^{-1}
      J^\top`, P the root of the diagonal of G with a floor of 1e-3 of its root mean square

    Only `loss_after_20` depends on the optimiser. What is not defined is nan.

    Parameters
    ----------
    module
        with samples along the first axis of its input and outputs `(n, k)`, in the mode in which it is trained; it is
        computed with in double precision
    x
        n samples
    y
        targets `(n, k)` for `"mse"`, class indices `(n,)` for `"cross_entropy"`
    loss
        `"mse"`, half the squared distance, or `"cross_entropy"`, both the mean over the samples
        (:func:`gnlib.diagnosis.loss_of`)
    optimizer
        `"descent"`, `"momentum"` or `"adam"`, on all samples at once
    goals
        losses
    generator
        of all that is drawn

    Raises
    ------
    ValueError
        Another optimiser; what :func:`gnlib.diagnosis.loss_of` and :func:`gnlib.modules.gauss_newton_gram` refuse.

    Examples
    --------
    >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
    <...>
    >>> net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    >>> x, y = torch.randn(4, 3, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64)
    >>> draws = torch.Generator().manual_seed(0)
    >>> found = predict(net, x, y, "mse", optimizer="descent", goals=[0.5], generator=draws)
    >>> found["parameters"], found["forecast_0.5"]
    (32.0, 1.0)
    """
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer is {optimizer!r}; one of {', '.join(map(repr, OPTIMIZERS))} was expected.")
    networks = networks_on(module, x, mode=zero_cost.mode_of(module), memory=MEMORY)
    network = networks[0]
    outputs = outputs_of(networks, MEMORY)
    target = loss_of(loss, y, outputs)
    residual, start = target.gradient(outputs), target.value(outputs)
    gradients = pull(networks, residual, MEMORY)
    kernel = gram_of(networks, MEMORY)
    values, vectors = torch.linalg.eigh(kernel)
    own = torch.linalg.eigvalsh(through(target.root(outputs), kernel))
    factors = preconditioner_of(
        optimizer_of("adam", network, network.parameters, 1.0), networks, network.parameters, gradients, MEMORY
    ).factors
    preconditioned = preconditioned_gram(networks, factors, MEMORY)
    chosen = preconditioned if optimizer == "adam" else kernel
    targets = (outputs if loss == "mse" else outputs.softmax(1)) - residual
    with differentiated(network, target) as (gradient, product):
        found = {
            **of_spectrum(values),
            "kappa_loss": of_spectrum(own)["kappa"],
            "alignment": alignment(kernel, targets),
            "weighted_residual": weighted_residual(values, vectors, residual),
            "drift": drift(networks, kernel, start, gradients, None, MEMORY),
            "sharpness": sharpness(product, len(gradient), generator=generator),
            "gradient_quotient": zero_cost.gradient_quotient(gradient, product(gradient)),
            "naswot": zero_cost.naswot(module, x),
            "zico": zero_cost.zico(module, x, y, loss, generator=generator),
            "synflow": zero_cost.synflow(module, x),
            "te_nas": zero_cost.te_nas(module, x),
            "chi_1": zero_cost.chi_1(network, generator=generator),
            "parameters": float(len(gradient)),
            "initial_loss": start,
            "gradient_norm": gradient.norm().item(),
        }
    largest = torch.linalg.eigvalsh(through(target.root(outputs), chosen))[-1].item()
    found["loss_after_20"] = loss_after(REAL_STEPS, module, x, target, optimizer, largest)
    for name, matrix in (("forecast", kernel), ("forecast_kp", preconditioned)):
        steps = fewest_steps(matrix, target, outputs, goals)
        found |= {f"{name}_{goal:g}": number for goal, number in zip(goals, steps, strict=True)}
    return found


def loss_after(steps: int, module: nn.Module, x: Tensor, loss: Loss, optimizer: str, largest: float) -> float:
    r"""Return the loss after real steps of an optimiser on all samples, over the loss before them.

    The rate is half the largest stable one where the network stands: :math:`1 / \lambda_{\max}` for descent,
    :math:`1.9 / \lambda_{\max}` with momentum of 0.9 and :math:`19 / \lambda_{\max}` for Adam, of the matrix of the loss
    (for Adam preconditioned by P).

    Parameters
    ----------
    steps
        how many
    module, x
        the network, of which a copy is trained in double precision, and its samples
    loss
        with its targets
    optimizer
        `"descent"`, `"momentum"` or `"adam"`
    largest
        :math:`\lambda_{\max}`

    Returns
    -------
    A fraction of the loss; inf where it diverged.
    """
    module, x = copy.deepcopy(module).double(), x.double()
    made = NAMED[OPTIMIZERS[optimizer]](module.parameters(), lr=1.0)
    for group in made.param_groups:
        group["lr"] = SHARE * rule_of(made).limit / largest
    losses = []
    for _ in range(steps + 1):
        outputs = module(x)
        losses.append(loss.value(outputs))
        made.zero_grad()
        outputs.backward(loss.gradient(outputs.detach()) / len(x))
        made.step()
    return float(torch.tensor(losses[-1] / losses[0]).nan_to_num(torch.inf))
