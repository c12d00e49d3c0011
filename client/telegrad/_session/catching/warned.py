"""Warnings of the server's host code, which programs see as warnings of Python's at the line that called it.

They arrive with answers, while the session reads; the program is told once that has ended, since its filters may make
errors of them, and what shows warnings may use tensors.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any, Final

arrived: Final[list[tuple[Any, str, int]]] = []
"""Sessions, texts and numbers of lines of warnings that the program was not told of."""


def tell() -> None:
    """Warn the program of what has arrived; raises the warning where the program's filters ask for it."""
    while arrived:
        session, text, number = arrived.pop(0)
        site = session.sites.site(number)
        if site is None:
            warnings.warn(text, stacklevel=2)
            continue
        module = next((one for one in list(sys.modules.values()) if getattr(one, "__file__", None) == site.file), None)
        registry = vars(module).setdefault("__warningregistry__", {}) if module is not None else None
        warnings.warn_explicit(text, UserWarning, site.file, site.line, getattr(module, "__name__", None), registry)
