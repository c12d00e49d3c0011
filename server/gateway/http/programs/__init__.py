"""Exported programs served over HTTP: their files, requests in several formats, batches of them, and their sessions."""

from __future__ import annotations
