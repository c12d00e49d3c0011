"""Signal processing under the names of PyTorch's ``torch.signal``."""

from __future__ import annotations

from . import windows as windows
