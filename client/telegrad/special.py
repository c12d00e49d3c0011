"""Special functions under the names of PyTorch's ``torch.special``."""

from __future__ import annotations

from telegrad._ops.functions import populate as _populate

_populate(globals(), "special")
