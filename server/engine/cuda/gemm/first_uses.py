"""What cuBLASLt loads when it is first asked about a type of elements, loaded beside the worker's thread as it starts.

That takes a tenth of a second for each type, which the first product of a process would wait for. Meanwhile the library
lets go of Python's lock, so the worker serves; a product that comes too soon waits as it would have anyway.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from server.engine.device.current_device import current_device
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType

from . import cublaslt
from .cublaslt import COMPUTE_32F, Problem, Side

_TYPES: Final = (dtypes.float32, dtypes.bfloat16, dtypes.float16)
"""The types that networks have, those that most have first."""
_SIZE: Final = 64

log = logging.getLogger(__name__)


def ask_beside(device: int) -> threading.Thread:
    """Begin to ask about each type on a GPU; returns the thread, which ends by itself and is waited for at exit."""
    thread = threading.Thread(target=_ask, args=(device,), name=f"telegrad-first-uses-{device}")
    thread.start()
    return thread


def _ask(device: int) -> None:
    try:
        with current_device(device):
            for dtype in _TYPES if cublaslt.is_available() else ():
                cublaslt.Product(device, _square(dtype)).algorithms(1)
    except Exception:  # whatever this is, who needs a product meets it, and says so
        log.warning("what matrix products need could not be loaded beforehand", exc_info=True)


def _square(dtype: DType) -> Problem:
    side = Side(dtype, _SIZE, _SIZE, _SIZE)
    return Problem(side, side, side, side, False, False, 1, COMPUTE_32F)
