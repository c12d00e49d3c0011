"""Process 1: HTTP and WebSocket, authentication, the registry of sessions, and the workers' supervisors.

It forwards the frames of sessions without decoding their operations, and imports nothing that computes.
"""

from __future__ import annotations
