"""Passes over graphs."""

from __future__ import annotations
