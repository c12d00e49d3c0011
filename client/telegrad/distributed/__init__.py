"""``torch.distributed``'s names. A program may make a group of its one process; more processes form none.

A session has all GPUs of its worker, which ``nn.DataParallel`` uses. What would need other processes refuses.
"""

from __future__ import annotations

import os
from datetime import timedelta
from enum import Enum
from typing import Any, NoReturn

from telegrad_protocol.errors import NotSupportedError

from .single import COLLECTIVES, USE_INSTEAD, to_another
from .single import GroupMember as GroupMember
from .single import ProcessGroup as ProcessGroup
from .single import Work as Work
from .single import destroy_process_group as destroy_process_group
from .single import get_backend as get_backend
from .single import get_global_rank as get_global_rank
from .single import get_group_rank as get_group_rank
from .single import get_process_group_ranks as get_process_group_ranks
from .single import get_rank as get_rank
from .single import get_world_size as get_world_size
from .single import init_process_group as init_process_group
from .single import is_initialized as is_initialized
from .single import new_group as new_group
from .stores import DistError as DistError
from .stores import DistStoreError as DistStoreError
from .stores import FileStore as FileStore
from .stores import HashStore as HashStore
from .stores import PrefixStore as PrefixStore
from .stores import Store as Store
from .stores import TCPStore as TCPStore
from .subgroups import new_subgroups as new_subgroups
from .subgroups import new_subgroups_by_enumeration as new_subgroups_by_enumeration
from .surroundings import DebugLevel as DebugLevel
from .surroundings import get_debug_level as get_debug_level
from .surroundings import get_node_local_rank as get_node_local_rank
from .surroundings import set_debug_level as set_debug_level
from .surroundings import set_debug_level_from_env as set_debug_level_from_env
from .surroundings import supports_complex as supports_complex

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
    """The name of a way to talk, which a group of one has no need of."""

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl"
    default_device_backend_map: dict[str, str] = {"cpu": GLOO, "cuda": NCCL}


group = GroupMember


DistBackendError = DistNetworkError = DistError


def is_available() -> bool:
    """Whether the program has made a group; before, packages are told that there is nobody to talk to."""
    return is_initialized()


is_nccl_available = is_gloo_available = is_mpi_available = is_ucc_available = is_xccl_available = is_available


def is_backend_available(backend: str) -> bool:
    """Whether the program has made a group, which has no need of a backend."""
    return is_initialized()


def is_torchelastic_launched() -> bool:
    """Whether ``torchrun`` has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def _refuse(name: str) -> NoReturn:
    raise NotSupportedError(f"distributed.{name}: a group has one process; {USE_INSTEAD}")


def _never_made(name: str) -> type:
    """Return a class for ``isinstance``, of which no object can be made."""

    def refuse(self: Any, *args: Any, **options: Any) -> NoReturn:
        _refuse(name)

    return type(
        name, (), {"__init__": refuse, "__module__": __name__, "__doc__": "For other processes: see the module."}
    )


DeviceMesh, GradBucket, P2POp = [_never_made(name) for name in ("DeviceMesh", "GradBucket", "P2POp")]


def init_device_mesh(*args: Any, **options: Any) -> NoReturn:
    """Refuse: there are no other processes."""
    _refuse("init_device_mesh")


_BETWEEN_TWO = "batch_isend_irecv irecv isend recv recv_object_list send send_object_list split_group"
globals().update(COLLECTIVES)
globals().update({name: to_another(name) for name in _BETWEEN_TWO.split()})
