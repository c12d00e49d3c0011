"""``torch.monitor``: events that a program reports to handlers of its own."""

from __future__ import annotations

from .events import Event as Event
from .events import EventHandlerHandle as EventHandlerHandle
from .events import log_event as log_event
from .events import register_event_handler as register_event_handler
from .events import unregister_event_handler as unregister_event_handler

__all__ = ["Event", "EventHandlerHandle", "log_event", "register_event_handler", "unregister_event_handler"]
