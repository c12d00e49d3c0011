"""Process 2: one thread and one loop over its sockets, the devices that it owns, and answers to control requests."""

from __future__ import annotations
