"""``out=`` of functions that are written in the client: their results are copied into existing tensors."""

from __future__ import annotations

from telegrad._ops.outputs import into as into
