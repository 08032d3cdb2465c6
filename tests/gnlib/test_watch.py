"""What a network's matrix says while it trains: in a loop, and from the trainers of other libraries."""

from functools import partial

import pytest
import torch
from torch import nn

import gnlib
from gnlib.watch import Watch
from tests.gnlib.networks import perceptron

X = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
Y = torch.randn(24, 2, generator=torch.Generator().manual_seed(1))


network = partial(perceptron, 4, 2)


def watched(**options):
    """Return a watch, and the list that it logs to."""
    log = []
    return Watch(X, Y, every=2, log=lambda found, step: log.append((step, found)), **options), log


def test_it_measures_the_network_of_now_every_so_many_steps():
    module, (watch, log) = network(), watched(dtype=torch.float64, goal=0.5)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for step in range(5):
        found = watch(module, step)
        assert (found is None) == (step % 2 == 1)
        if found is not None:
            g = gnlib.GaussNewton(module, X, Y)
            largest = float(g.eigenvalues()[0])
            assert found["largest_eigenvalue"] == pytest.approx(largest, rel=2e-3)
            assert found["stable_rate"] == pytest.approx(g.stable_rate().rate, rel=2e-3)
            assert found["effective_condition_number"] == pytest.approx(g.effective_condition_number(0.5), rel=0.3)
        optimizer.zero_grad()
        (module(X) - Y).square().mean().backward()
        optimizer.step()
    assert [step for step, _ in log] == [0, 2, 4]
    assert len({found["largest_eigenvalue"] for _, found in log}) == 3


@pytest.mark.bad_input
def test_without_targets_the_largest_eigenvalue_alone_and_no_steps_are_refused():
    log = []
    found = Watch(X, log=lambda *entry: log.append(entry))(network(), 0)
    assert sorted(found) == ["largest_eigenvalue", "stable_rate"] and log == [(found, 0)]
    with pytest.raises(ValueError, match="every is 0; a whole number of at least 1"):
        Watch(X, Y, every=0)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_a_callback_of_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network()

        def forward(self, x, labels=None):
            out = self.inner(x)
            return {"loss": (out - labels).square().mean(), "logits": out}

    watch, log = watched(output=lambda result: result["logits"], loss="mse")
    watch._asked = ({"x": X, "labels": Y}, Y, "mse")
    data = [{"x": a, "labels": b} for a, b in zip(X, Y, strict=True)]
    settings = dict(max_steps=5, per_device_train_batch_size=8, report_to=[], use_cpu=True, disable_tqdm=True)
    arguments = transformers.TrainingArguments(str(tmp_path), **settings)
    transformers.Trainer(Model(), arguments, train_dataset=data, callbacks=[watch.for_transformers()]).train()
    assert [step for step, _ in log] == [0, 2, 4]
    assert log[0][1]["largest_eigenvalue"] != log[2][1]["largest_eigenvalue"]


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_a_callback_of_lightning(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.inner = network()

        def forward(self, x):
            return self.inner(x)

        def training_step(self, batch, _):
            return (self.inner(batch[0]) - batch[1]).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    watch, log = watched()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), 8)
    options = dict(max_steps=5, accelerator="cpu", enable_progress_bar=False, enable_checkpointing=False)
    trainer = lightning.Trainer(callbacks=[watch.for_lightning()], default_root_dir=tmp_path, logger=False, **options)
    trainer.fit(Model(), loader)
    assert [step for step, _ in log] == [0, 2, 4]
