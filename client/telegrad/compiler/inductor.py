"""What programs use of ``torch._inductor``: settings, and lists of them. None has an effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from . import cudagraph_mark_step_begin as cudagraph_mark_step_begin
from .config import INDUCTOR, Config

config = Config.registered("telegrad.compiler.inductor.config", **INDUCTOR)
_TUNED: Final = {"max_autotune": True, "coordinate_descent_tuning": True}
_OF_MODES: Final[dict[str, dict[str, Any]]] = {
    "default": {}, "reduce-overhead": {"triton.cudagraphs": True}, "max-autotune-no-cudagraphs": _TUNED,
    "max-autotune": {"triton.cudagraphs": True, **_TUNED},
}  # fmt: skip


def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> dict[str, Any]:
    """Return the settings that a mode stands for in PyTorch, or those of all modes by their names."""
    return dict(_OF_MODES if mode is None else _OF_MODES[mode])


def list_options() -> list[str]:
    """Return the names of settings that are known before a program sets them."""
    return sorted(INDUCTOR)


def compile(gm: Any, example_inputs: Sequence[Any], options: dict[str, Any] | None = None) -> Any:
    """Return the module of a graph as it is: each call of an operation goes to the server."""
    return gm
