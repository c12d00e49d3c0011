"""Which module a tracer is in, and where the program is."""

from __future__ import annotations

import copy
import sys
import traceback
from typing import Any

from telegrad._session.own_code import is_own


class Scope:
    """The path and the class of the module whose ``forward`` is traced; an empty path for the root."""

    def __init__(self, module_path: str, module_type: Any) -> None:
        self.module_path, self.module_type = module_path, module_type


class ScopeContextManager:
    """Makes a scope that of another module within a block."""

    def __init__(self, scope: Scope, current_scope: Scope) -> None:
        self._scope, self._before = scope, copy.copy(scope)
        scope.module_path, scope.module_type = current_scope.module_path, current_scope.module_type

    def __enter__(self) -> Scope:
        return self._scope

    def __exit__(self, *error: object) -> None:
        self._scope.module_path, self._scope.module_type = self._before.module_path, self._before.module_type


def program_stack() -> str | None:
    """Return the lines of the program below the first ``forward`` that is running; None without one."""
    frames = traceback.extract_stack(sys._getframe(1))
    first = next((place for place, frame in enumerate(frames) if frame.name == "forward"), None)
    if first is None:
        return None
    shown = [frame for frame in frames[first:] if not is_own(frame.filename)]
    return "".join(traceback.format_list(shown)).strip()
