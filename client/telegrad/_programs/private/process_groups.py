"""Modules below ``torch.distributed`` for groups of processes, sharded tensors and modules, and their files.

Packages import their classes to ask with ``isinstance``, and their settings to pass them on. There is no group of
processes: no such object can be made, and every function refuses.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, NoReturn

from telegrad import distributed as _distributed
from telegrad._tensor.tensor import Tensor
from telegrad.nn import Module
from telegrad.optim import Optimizer
from telegrad_protocol.errors import NotSupportedError

_MODULE_CLASSES: Final = "CheckpointWrapper FSDPModule FullyShardedDataParallel OffloadWrapper"
_OPTIMIZERS: Final = "DistributedOptimizer PostLocalSGDOptimizer ZeroRedundancyOptimizer"
_CLASSES: Final = (
    "AsyncCollectiveTensor ColwiseParallel DefaultLoadPlanner DefaultSavePlanner FileSystemReader "
    "FileSystemWriter HuggingFaceStorageReader HuggingFaceStorageWriter LaunchConfig ModelAverager "
    "ModuleWrapPolicy Partial PeriodicModelAverager Placement PostLocalSGDState PowerSGDState PrepareModuleInput "
    "PrepareModuleOutput Replicate RowwiseParallel ScheduleGPipe SequenceParallel Shard ShardedGradScaler "
    "ShardedTensor _EmptyStateDictLoadPlanner _StridedShard"
)
_SETTINGS: Final = (
    "CPUOffload CPUOffloadPolicy FullOptimStateDictConfig FullStateDictConfig LocalOptimStateDictConfig "
    "LocalStateDictConfig MixedPrecision "
    "MixedPrecisionPolicy OffloadPolicy OptimStateDictConfig ShardedOptimStateDictConfig ShardedStateDictConfig "
    "StateDictConfig StateDictSettings"
)
_FUNCTIONS: Final = (
    "_get_default_group _load_state_dict _or_policy _sync_module_states all_gather_tensor all_reduce "
    "all_to_all_single_autograd apply_activation_checkpointing batched_powerSGD_hook bf16_compress_hook "
    "bf16_compress_wrapper checkpoint_wrapper compute_local_shape_and_global_offset consolidate_safetensors_files "
    "context_parallel distribute_module distribute_tensor elastic_launch enable_wrap fp16_compress_hook "
    "fp16_compress_wrapper fully_shard get_args_parser "
    "implicit_replication lambda_auto_wrap_policy load load_sharded_optimizer_state_dict load_state_dict main "
    "offload_wrapper parallelize_module permute_tensor pipeline powerSGD_hook register_fsdp_forward_method run save "
    "save_state_dict set_rotate_method "
    "size_based_auto_wrap_policy transformer_auto_wrap_policy wait_tensor wrap"
)
_CHOICES: Final = {
    "BackwardPrefetch": "BACKWARD_PRE BACKWARD_POST",
    "CheckpointImpl": "REENTRANT NO_REENTRANT",
    "OptimStateKeyType": "PARAM_NAME PARAM_ID",
    "ShardingStrategy": "FULL_SHARD SHARD_GRAD_OP NO_SHARD HYBRID_SHARD _HYBRID_SHARD_ZERO2",
    "SplitPoint": "BEGINNING END",
    "StateDictType": "FULL_STATE_DICT LOCAL_STATE_DICT SHARDED_STATE_DICT",
}

_get_global_rank = _distributed.get_global_rank
DeviceMesh, init_device_mesh = _distributed.DeviceMesh, _distributed.init_device_mesh
default_pg_timeout = _distributed.default_pg_timeout
is_xccl_available = _distributed.is_available
_pg_map: dict[Any, Any] = {}
"""The groups that there are: none."""


def _refusal(name: str) -> NotSupportedError:
    return NotSupportedError(
        f"distributed: {name} needs a group of processes, and telegrad's form none; one session has all GPUs of its "
        "worker, see connect(gpus=...) and nn.DataParallel; torch.save keeps a state_dict"
    )


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise _refusal(type(self).__name__)


def _never_made(name: str, *bases: type) -> type:
    made = {"__doc__": "For ``isinstance``: there are no such objects.", "__module__": __name__}
    return type(name, bases, {**made, ("__new__" if Tensor in bases else "__init__"): _refuse})


def _refusing(name: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise _refusal(name)

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "Refuse: processes form no groups."
    return refuse


class _Settings:
    """Settings for modules that are spread over processes, as attributes."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.__dict__.update(settings)


DTensor = _never_made("DTensor", Tensor)
globals().update({name: _never_made(name, Module) for name in _MODULE_CLASSES.split()})
globals().update({name: _never_made(name, Optimizer) for name in _OPTIMIZERS.split()})
globals().update({name: _never_made(name) for name in _CLASSES.split()})
globals().update({name: type(name, (_Settings,), {"__module__": __name__}) for name in _SETTINGS.split()})
globals().update({name: _refusing(name) for name in _FUNCTIONS.split()})
globals().update({name: Enum(name, members, module=__name__) for name, members in _CHOICES.items()})


def __getattr__(name: str) -> Any:
    """Return what ``torch.distributed`` itself has."""
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(_distributed, name)
