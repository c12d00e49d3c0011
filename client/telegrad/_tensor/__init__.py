"""The handle on a remote tensor, and what turns its elements into text, arrays and files."""

from __future__ import annotations
