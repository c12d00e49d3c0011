"""Tests of the byte path: link, socket, gateway, worker, with a stub in the place of the engine."""

from __future__ import annotations
