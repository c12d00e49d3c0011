"""Settings that state dictionaries of older versions of PyTorch lack, and what their optimizers did without them."""

from __future__ import annotations

from typing import Any, Final

ADDED: Final[dict[str, Any]] = {
    "amsgrad": False, "capturable": False, "centered": False, "decoupled_weight_decay": False, "differentiable": False,
    "foreach": None, "fused": None, "maximize": False, "momentum": 0, "nesterov": False,
}  # fmt: skip


def complete(groups: list[dict[str, Any]], defaults: dict[str, Any], added: dict[str, Any]) -> None:
    """Give each group those of the ``added`` settings that its optimizer has, and that it lacks."""
    for group in groups:
        for name in added.keys() & defaults.keys() - group.keys():
            group[name] = added[name]
