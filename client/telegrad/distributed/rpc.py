"""``torch.distributed.rpc``'s names: there are no other processes to call, and what would need them refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NoReturn

from telegrad_protocol.errors import NotSupportedError


class TensorPipeRpcBackendOptions:
    """Options of calls between processes, of which there are none."""

    def __init__(self, **options: Any) -> None:
        self.__dict__.update(options)


class RRef:
    """A reference to an object of another process, for annotations and ``isinstance``."""


class WorkerInfo:
    """Another process, for annotations and ``isinstance``."""


def is_available() -> bool:
    """Whether there are calls between processes: there are none."""
    return False


def _is_current_rpc_agent_set() -> bool:
    return False


def init_rpc(*args: Any, **kwargs: Any) -> NoReturn:
    """Refuse: a session has no group of processes."""
    raise NotSupportedError(
        "distributed.rpc: a session has no group of processes; it has all GPUs of its worker, see torch.nn.DataParallel"
    )


rpc_sync = rpc_async = remote = shutdown = init_rpc
api = SimpleNamespace(_require_initialized=lambda function: function, _all_gather=init_rpc)
