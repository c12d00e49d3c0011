"""What programs use of ``torch._inductor``: settings, without an effect."""

from __future__ import annotations

from .config import Config

config = Config.registered("telegrad.compiler.inductor.config")
