"""The accelerator of the current session's server, under ``torch.cuda``'s names.

``device`` may be an index, a name, or None for the current GPU, which belongs to a thread: see ``devices``. On a server
without a GPU the functions about memory tell of its CPU memory, which the same allocator manages.
"""

from __future__ import annotations

from telegrad_protocol.errors import OutOfMemoryError as OutOfMemoryError

from . import amp as amp
from . import comm as comm
from . import memory as memory
from . import random as random
from . import tunable as tunable
from .devices import *  # noqa: F403
from .memory import *  # noqa: F403  # as in torch.cuda, they are in both modules
from .random import *  # noqa: F403
from .streams import Event as Event
from .streams import Stream as Stream
from .streams import StreamContext as StreamContext
from .streams import current_stream as current_stream
from .streams import default_stream as default_stream
from .streams import set_stream as set_stream
from .streams import stream as stream
