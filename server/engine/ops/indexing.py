"""Indexing, gathering, scattering, sorting."""

from __future__ import annotations
