"""Passes and tracers that PyTorch calls experimental."""

from __future__ import annotations
