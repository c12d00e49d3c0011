"""Transports: how frames get to a session and back.

``transport`` says what a session asks of them; one goes over a WebSocket, one stays in this process. ``ahead`` counts
how far the other end is behind, ``chunked_data`` puts large answers together. Nothing here knows sessions, instructions
or tensors, nor what is in a frame.
"""

from __future__ import annotations
