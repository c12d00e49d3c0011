"""What programs have around their models, under the names of PyTorch's ``torch.utils``."""

from __future__ import annotations

from telegrad._functions.memory.swapping import swap_tensors as swap_tensors

from . import checkpoint as checkpoint
from . import data as data
from . import deterministic as deterministic
from . import dlpack as dlpack
