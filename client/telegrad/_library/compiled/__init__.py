"""What PyTorch has of operators in ``torch._C``, ``torch._ops`` and ``torch._library``, for programs that use it."""

from __future__ import annotations
