"""Kernels of what several layers of a model do alike: one launch for all."""

from __future__ import annotations
