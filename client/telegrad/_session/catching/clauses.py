"""Which clauses of a frame would catch an error of telegrad's: looked up once for each place in its code.

Python's own library and telegrad count for nothing, but for what runs tests of ``unittest``, and of ``pytest`` in
programs of PyTorch's kind: a test whose work has failed fails, and no later one. What runs notebooks is no part of the
program. Knows no sessions.
"""

from __future__ import annotations

import math
import sysconfig
from types import CodeType, FrameType
from typing import Final

from telegrad._session.own_code import is_own
from telegrad_protocol.shown_name import shown_name

from .scope import Scope

_STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"]
_INSTALLED = ("site-packages", "dist-packages")
_PYTEST = "_pytest.python"
_SHELLS = ("IPython.", "ipykernel.")
_MOST_KNOWN: Final = 1 << 14


class Clause:
    """A clause that would catch an error; ``patience`` is how many more calls are awaited for it in vain."""

    __slots__ = ("patience",)

    PATIENCE: Final = 64

    def __init__(self, patience: float = PATIENCE) -> None:
        self.patience = patience


Clauses = tuple[Clause, ...]
found: dict[tuple[int, int], Clauses | None] = {}
"""What ``look_up`` has found, by the id of a code object and the place in it."""
_codes: dict[int, CodeType] = {}
"""The code objects by their ids, which no other object can get meanwhile."""
_by_target: dict[tuple[int, int], Clause] = {}
_IN_TESTS: Final = (Clause(math.inf),)


def look_up(frame: FrameType) -> Clauses | None:
    """Return the clauses around the instruction that a frame executes, innermost first; None for what runs programs."""
    if len(found) >= _MOST_KNOWN:
        found.clear()
        _codes.clear()
        _by_target.clear()
    try:
        clauses = _find(frame)
    except Exception:  # what an attribute of the program raises, or code of a kind that is not known
        clauses = ()
    _codes[id(frame.f_code)] = frame.f_code
    found[id(frame.f_code), frame.f_lasti] = clauses
    return clauses


def _find(frame: FrameType) -> Clauses | None:
    code, module = frame.f_code, str(frame.f_globals.get("__name__"))
    if module.startswith(_SHELLS):
        return None
    if module.startswith(_PYTEST):
        return _IN_TESTS if shown_name("").startswith("torch") else None
    if is_own(code.co_filename) or _is_standard(code.co_filename):
        is_test = module == "unittest.case" and code.co_name in ("handle", "_callTestMethod")
        return _IN_TESTS if is_test else ()
    if not code.co_exceptiontable:
        return ()
    # Local variables are not looked at: Python would keep what it shows of them, tensors too, while the frame lives.
    targets = Scope(code, frame.f_globals, frame.f_builtins).catching_targets(frame.f_lasti)
    return tuple(_by_target.setdefault((id(code), target), Clause()) for target in targets)


def _is_standard(file: str) -> bool:
    return file.startswith("<frozen") or (
        file.startswith(_STANDARD_LIBRARY) and not any(folder in file for folder in _INSTALLED)
    )
