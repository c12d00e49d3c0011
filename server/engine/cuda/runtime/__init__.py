"""What every CUDA kernel needs: the compiler and its cache, launches, faults, and the common text."""

from __future__ import annotations
