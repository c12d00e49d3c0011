"""Whether kernels of Triton can be compiled, as packages ask before they import them."""

from __future__ import annotations

from importlib.util import find_spec

from telegrad import cuda


def has_triton_package() -> bool:
    """Whether the program can import Triton."""
    return find_spec("triton") is not None


def has_triton() -> bool:
    """Whether the program can import Triton and the server has a GPU to run its kernels."""
    return has_triton_package() and cuda.is_available()
