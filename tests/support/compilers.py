"""Tests that need the calls in C, or a compiler that makes them."""

from __future__ import annotations

import os

import pytest

from telegrad_protocol.native import VARIABLE
from telegrad_protocol.native.compiling import compiler

needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no compiler of C")
needs_calls_in_c = pytest.mark.skipif(
    compiler() is None or os.environ.get(VARIABLE) == "never", reason="there is no compiler of C, or it is not wanted"
)
"""Not skipped where there is a compiler that fails: then such tests fail, too."""
