"""Tests of the gateway's HTTP side, against an engine of a few operations."""

from __future__ import annotations
