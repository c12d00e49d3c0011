"""Which code is telegrad's own, warnings at lines of the program, and how IPython calls the code of a cell.

Knows neither sessions nor tensors.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import telegrad_protocol

_OWN = tuple(
    [
        os.path.dirname(os.path.abspath(file)) + os.sep
        for file in (os.path.dirname(__file__), str(telegrad_protocol.__file__))
    ]
)
"""The folders of ``telegrad`` and ``telegrad_protocol``."""

own_files: set[str] = set()
other_files: set[str] = set()
"""Names of files, as code objects have them, that are known to be telegrad's, and known not to be."""

told: set[str] = set()
"""What ``note_once`` has warned of."""


def is_own(file: str) -> bool:
    """Tell whether the file that a code object names is telegrad's, and put it into the set where it belongs."""
    own = file.startswith(_OWN)
    (own_files if own else other_files).add(file)
    return own


def count_as_own(folder: str) -> None:
    """Let the files below a folder, such as those of a compiler that calls telegrad, count as telegrad's."""
    global _OWN
    prefix = os.path.abspath(folder) + os.sep
    if prefix not in _OWN:
        _OWN = (*_OWN, prefix)
        other_files.difference_update([file for file in other_files if file.startswith(prefix)])


def depth_of_program() -> int:
    """Return the level, as ``warnings.warn`` counts from the caller of this, of the innermost frame not telegrad's."""
    frame, depth = sys._getframe(1).f_back, 2
    while frame is not None and is_own(frame.f_code.co_filename):
        frame, depth = frame.f_back, depth + 1
    return depth


def note(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the program that is running."""
    warnings.warn(text, category, stacklevel=depth_of_program())


def note_once(text: str) -> None:
    """Warn at the line of the program that is running, unless the process was warned of this before."""
    if text not in told:
        told.add(text)
        warnings.warn(text, stacklevel=depth_of_program())


def running_shell() -> Any:
    """Return IPython's shell if this program runs in one, else None; IPython is not imported for it."""
    ipython = sys.modules.get("IPython")
    get_shell = getattr(ipython, "get_ipython", None)
    return None if get_shell is None else get_shell()


def shown_name(file: str) -> str:
    """Return the name under which a file is shown: that of a cell, such as ``Cell In[7]``, where its code is one."""
    compiler = getattr(running_shell(), "compile", None)
    format_name = getattr(compiler, "format_code_name", None)
    label_and_name = None if format_name is None else format_name(file)
    return file if label_and_name is None else " ".join(label_and_name)
