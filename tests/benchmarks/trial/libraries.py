"""Libraries of networks, which import torchvision: what it lacks of its own operators is declared, and never called."""

import torch

OPERATORS = "nms", "qnms"  # of boxes, without which torchvision does not load
DECLARED = torch.library.Library("torchvision", "FRAGMENT")


def declare() -> None:
    """Declare the operators that torchvision asks for as it loads, where its build is for another build of torch."""
    for name in OPERATORS:
        try:
            torch._C._dispatch_has_kernel_for_dispatch_key(f"torchvision::{name}", "Meta")
        except RuntimeError:
            DECLARED.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
