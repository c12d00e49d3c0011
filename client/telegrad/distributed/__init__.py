"""``torch.distributed``'s names. A program asks here whether there are processes to talk to; there never are.

A session has all GPUs of its worker, which ``nn.DataParallel`` uses. What would need a group of processes refuses.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from typing import Any, NoReturn

from telegrad_protocol.errors import ArgumentError, NotSupportedError

default_pg_timeout = timedelta(minutes=30)


class ReduceOp(Enum):
    """How processes combine their tensors."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8


setattr(ReduceOp, "RedOpType", ReduceOp)  # noqa: B010 - the enumeration's name where it is a class inside of another


class Backend(str):
    """The name of a way to talk, of which there is none."""

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl"
    default_device_backend_map: dict[str, str] = {"cpu": GLOO, "cuda": NCCL}


class Store:
    """What processes share to find each other, of which there is none."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse(type(self).__name__)


FileStore = HashStore = PrefixStore = TCPStore = Store


class ProcessGroup:
    """A group of processes, of which there is none."""


class Work:
    """What a communication that was begun returns, of which there is none."""


class GroupMember:
    """The constants that stand for groups."""

    WORLD: ProcessGroup | None = None
    NON_GROUP_MEMBER = object()


group = GroupMember


class DistError(RuntimeError):
    """The error of PyTorch's communication, which is never raised here."""


DistBackendError = DistNetworkError = DistStoreError = DistError


def is_available() -> bool:
    """Whether processes can form a group: they cannot."""
    return False


is_initialized = is_nccl_available = is_gloo_available = is_mpi_available = is_ucc_available = is_available
is_xccl_available = is_available


def is_backend_available(backend: str) -> bool:
    """Whether processes can talk in this way: they cannot."""
    return False


def is_torchelastic_launched() -> bool:
    """Whether ``torchrun`` has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def _refuse(name: str) -> NoReturn:
    raise NotSupportedError(
        f"distributed.{name}: telegrad's processes form no groups; one session has all GPUs of its worker, "
        "see connect(gpus=...) and nn.DataParallel"
    )


def no_group(name: str) -> Callable[..., NoReturn]:
    """Return a function that raises what PyTorch raises where no group was initialized."""

    def communicate(*args: Any, **kwargs: Any) -> NoReturn:
        raise ArgumentError(f"distributed.{name}: Default process group has not been initialized")

    communicate.__name__ = communicate.__qualname__ = name
    communicate.__doc__ = "Raise ArgumentError, as PyTorch does where no group of processes was initialized."
    return communicate


def init_process_group(backend: str | None = None, init_method: str | None = None, **options: Any) -> NoReturn:
    """Refuse: processes form no groups."""
    _refuse("init_process_group")


def new_group(*args: Any, **options: Any) -> NoReturn:
    """Refuse: processes form no groups."""
    _refuse("new_group")


def init_device_mesh(*args: Any, **options: Any) -> NoReturn:
    """Refuse: processes form no groups."""
    _refuse("init_device_mesh")


_COMMUNICATION = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all", "all_to_all_single",
    "barrier", "batch_isend_irecv", "broadcast", "broadcast_object_list", "destroy_process_group", "gather",
    "gather_object", "get_backend",
    "get_global_rank", "get_group_rank", "get_process_group_ranks", "get_rank", "get_world_size", "irecv", "isend",
    "monitored_barrier", "recv", "recv_object_list", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter",
    "scatter_object_list", "send", "send_object_list",
)  # fmt: skip
"""Functions that need a group."""
globals().update({name: no_group(name) for name in _COMMUNICATION})
