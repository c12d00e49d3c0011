"""What tests use: comparisons within the tolerance of a dtype, and tensors of random elements."""

from __future__ import annotations

from ._comparison import assert_allclose as assert_allclose
from ._comparison import assert_close as assert_close
from ._creation import make_tensor as make_tensor

__all__ = ["assert_allclose", "assert_close", "make_tensor"]
