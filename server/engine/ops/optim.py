"""Optimizer steps, each for a whole parameter list."""

from __future__ import annotations
