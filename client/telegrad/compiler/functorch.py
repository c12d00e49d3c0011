"""What programs use of ``torch._functorch.config``: settings, without an effect."""

from __future__ import annotations

from .config import FUNCTORCH, Config

config = Config.registered("telegrad.compiler.functorch.config", **FUNCTORCH)
