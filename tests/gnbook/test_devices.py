"""Whatever the rooms make says on which device: without it a tensor is on the default device, not beside the others."""

import ast
from pathlib import Path

import gnbook
from torch.utils._device import _device_constructors

BOOK = Path(gnbook.__file__).parent
MAKERS = {f"torch.{make.__name__}" for make in _device_constructors()}
# What is drawn there, or made of plain numbers, and moved as a whole.
ON_THE_CPU = set(
    "adding_the_identity.chains.trainings adding_the_identity.chains.skip_of adding_the_identity.chains.drawn "
    "adding_the_identity.chains.normal attention.models.samples attention.models.respread attention.models.build "
    "attention.models.__init__ attention.trial.weights_kappa convolution.measured._patches "
    "convolution.measured.most_paths cost.feasible.eigenvalue_seconds law_of_depth.products.lemma_2_terms "
    "piecewise_linear_maps.networks.gaussian piecewise_linear_maps.practice.steps_to pruning.augmentation._flipped "
    "pruning.augmentation.zoomed pruning.augmentation.shifted pruning.experiment.run pruning.experiment.passed "
    "pruning.recipes.images quick_start.networks.transformer random_layers.regions.look_at "
    "random_layers.regions.relu_condition shared.families.uneven shared.families.__init__ "
    "shared.networks.__init__ shared.original_images._pixels shared.original_images.second_moment_of_all "
    "what_predicts_training.curvature.sharpness what_predicts_training.forecasts.<module>".split()
)


def makers_without_device(node, function="<module>"):
    """Yield the functions in which a tensor is made that is not told on which device."""
    if isinstance(node, ast.FunctionDef):
        function = node.name
    if isinstance(node, ast.Call) and ast.unparse(node.func) in MAKERS:
        if not {"device", None} & {keyword.arg for keyword in node.keywords}:  # or **options
            yield function
    for child in ast.iter_child_nodes(node):
        yield from makers_without_device(child, function)


def test_each_tensor_is_told_its_device():
    found = {
        f"{'.'.join(path.relative_to(BOOK).with_suffix('').parts)}.{function}"
        for path in BOOK.rglob("*.py")
        for function in makers_without_device(ast.parse(path.read_text()))
    }
    assert found <= ON_THE_CPU
