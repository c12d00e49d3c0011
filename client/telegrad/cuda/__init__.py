"""The accelerator of the current session's server, under ``torch.cuda``'s names.

``device`` may be an index, a name, or None for the current GPU, which belongs to a thread: see ``devices``. On a server
without a GPU the functions about memory tell of its CPU memory, which the same allocator manages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from telegrad._lazy import lazy
from telegrad_protocol.errors import AcceleratorError as AcceleratorError
from telegrad_protocol.errors import OutOfMemoryError as OutOfMemoryError

from . import memory as memory
from . import random as random
from .devices import *  # noqa: F403
from .devices import _is_compiled as _is_compiled
from .devices import _is_in_bad_fork as _is_in_bad_fork
from .devices import _lazy_call as _lazy_call
from .devices import _lazy_init as _lazy_init
from .memory import *  # noqa: F403  # as in torch.cuda, they are in both modules
from .random import *  # noqa: F403
from .streams import Event as Event
from .streams import Stream as Stream
from .streams import StreamContext as StreamContext
from .streams import current_stream as current_stream
from .streams import default_stream as default_stream
from .streams import set_stream as set_stream
from .streams import stream as stream

if TYPE_CHECKING:
    from . import amp as amp
    from . import comm as comm
    from . import nvtx as nvtx
    from . import profiler as profiler
    from . import tunable as tunable
    from .addresses import *  # noqa: F403
    from .graphs import *  # noqa: F403
    from .kernels import RawKernel as RawKernel
    from .kernels import RawModule as RawModule
    from .kernels import _compile_kernel as _compile_kernel
    from .modes import *  # noqa: F403
    from .monitoring import *  # noqa: F403
    from .runtime import *  # noqa: F403
    from .tensor_types import *  # noqa: F403
else:
    _get, __dir__ = lazy(
        __name__,
        {
            "amp": "",
            "tensor_types": (
                "BFloat16Tensor BoolTensor ByteTensor CharTensor ComplexDoubleTensor ComplexFloatTensor DoubleTensor "
                "FloatTensor HalfTensor IntTensor LongTensor ShortTensor"
            ),
            "comm": "",
            "nvtx": "",
            "profiler": "",
            "tunable": "",
            "addresses": (
                "CUDAPluggableAllocator ExternalStream GreenContext caching_allocator_disabled "
                "caching_allocator_enable change_current_allocator current_blas_handle current_solver_handle "
                "get_stream_from_external"
            ),
            "graphs": "CUDAGraph graph graph_pool_handle is_current_stream_capturing make_graphed_callables",
            "kernels": "RawKernel RawModule _compile_kernel",
            "modes": "get_sync_debug_mode set_sync_debug_mode",
            "monitoring": (
                "clock_rate device_memory_used list_gpu_processes memory_usage power_draw temperature utilization"
            ),
            "runtime": (
                "CudaError check_error cudaStatus cudart get_arch_list get_gencode_flags ipc_collect is_tf32_supported"
            ),
        },
    )

    def __getattr__(name: str) -> Any:
        """Return what is imported when a program first names it, and what the session is asked for each time."""
        asked = _OF_THE_SESSION.get(name)
        return _get(name) if asked is None else asked()

    _OF_THE_SESSION = {"_initialized": is_initialized, "default_generators": random.default_generators}  # noqa: F405
