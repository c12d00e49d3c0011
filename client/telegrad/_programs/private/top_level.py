"""Names of ``torch`` itself that are no part of its interface, and that packages use."""

from __future__ import annotations

from telegrad.jit import ScriptModule as ScriptModule

from . import checks as _checks
from . import foreach
from .archives import PyTorchFileReader as PyTorchFileReader

_assert = _checks._assert
_check = _checks._check
_check_index = _checks._check_index
_check_is_size = _checks._check_is_size
_check_not_implemented = _checks._check_not_implemented
_check_type = _checks._check_type
_check_value = _checks._check_value
_check_with = _checks._check_with
globals().update(foreach.functions())
