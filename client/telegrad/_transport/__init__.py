"""Transports: how frames get to a session and back.

``transport`` says what a session asks of them; one goes over a WebSocket, one stays in this process. Nothing here knows
sessions, instructions or tensors, nor what is in a frame.
"""

from __future__ import annotations
