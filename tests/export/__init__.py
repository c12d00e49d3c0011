"""Modules that are exported as programs, their files, and a server that serves them."""

from __future__ import annotations
