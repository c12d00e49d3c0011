"""Sessions without a server, whose tensors have shapes and no elements."""

from __future__ import annotations
