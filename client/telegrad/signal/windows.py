"""Window functions under the names of PyTorch's ``torch.signal.windows``."""

from __future__ import annotations

from telegrad._ops.functions import populate as _populate

_populate(globals(), "signal.windows")
