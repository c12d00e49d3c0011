"""What a process waits for when it first uses something, done beside the worker's thread as it starts.

The first program of a process would wait for it otherwise. Libraries and the driver let go of Python's lock meanwhile,
so the worker serves; who needs something too soon waits as it would have anyway.
"""

from __future__ import annotations

import logging
import threading

from server.engine.device.current_device import current_device

from . import first_products
from .runtime import cudnn_graph, modules
from .runtime.launch import architecture

log = logging.getLogger(__name__)


def begin(device: int) -> threading.Thread:
    """Begin to load what programs need on a GPU; returns the thread, which ends by itself and is waited for at exit."""
    thread = threading.Thread(target=_load, args=(device,), name=f"telegrad-first-uses-{device}")
    thread.start()
    return thread


def _load(device: int) -> None:
    """Load what most programs wait for first: cuBLASLt's tables, and what the last processes used."""
    first, *others = first_products.TYPES
    try:
        with current_device(device):
            target = architecture(device)
            first_products.ask_about(device, first)
            modules.load_beforehand(device, target)
            first_products.compute_last(device)
            for dtype in others:
                first_products.ask_about(device, dtype)
            cudnn_graph.load_beforehand(target)
    except Exception:  # whatever this is, who needs it meets it, and says so
        log.warning("what first uses need could not be loaded beforehand", exc_info=True)
