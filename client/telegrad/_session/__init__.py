"""The client's side of a session: opening it, its queue of instructions, its answers, and the modes that ride along."""

from __future__ import annotations
