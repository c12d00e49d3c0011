"""Linear algebra under the names of PyTorch's ``torch.linalg``."""

from __future__ import annotations

from telegrad._ops.functions import populate as _populate
from telegrad_protocol.errors import LinearAlgebraError as LinAlgError

_populate(globals(), "linalg")

__all__ = ["LinAlgError", *[name for name in globals() if not name.startswith("_") and name != "annotations"]]
