"""``from_dlpack`` and ``to_dlpack`` under the name of PyTorch's ``torch.utils.dlpack``."""

from __future__ import annotations

from telegrad._functions.memory.dlpack import from_dlpack as from_dlpack
from telegrad._functions.memory.dlpack import to_dlpack as to_dlpack
