"""What the graphs of exported programs call where a module has turned gradients off for some of its operations."""

from __future__ import annotations

from telegrad._session.grad_mode import _set_grad_enabled, is_grad_enabled
from telegrad.fx.node import has_side_effect


@has_side_effect
def enter_no_grad() -> bool:
    """Turn gradients off; return whether they were on."""
    was_on = is_grad_enabled()
    _set_grad_enabled(False)
    return was_on


@has_side_effect
def exit_no_grad(was_on: bool) -> None:
    """Have gradients as they were before ``enter_no_grad``."""
    _set_grad_enabled(was_on)
