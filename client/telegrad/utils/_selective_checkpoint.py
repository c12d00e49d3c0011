"""Names of selective checkpoints and of random states around checkpoints."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad.cuda import get_rng_state, set_rng_state
from telegrad_protocol.errors import ArgumentTypeError, AutogradError


class CheckpointPolicy(enum.Enum):
    """What a selective checkpoint is to do with the result of an operation."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


class SelectiveCheckpointContext:
    """What a policy function is told about an operation."""

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute = is_recompute
        self.op_output = op_output


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Callable[..., Any] | Sequence[Any], allow_cache_entry_mutation: bool = False
) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Return contexts for ``checkpoint(context_fn=...)``: what a policy wants saved is not computed again.

    The policy is asked with a ``SelectiveCheckpointContext``, the operator and its arguments, for each operator of the
    checkpoint; a list names operators whose results are saved. Both runs are slower than a checkpoint without.
    """
    if not callable(policy_fn_or_list) and not isinstance(policy_fn_or_list, (list, tuple)):
        raise ArgumentTypeError("policy_fn_or_list must be either a function or a list of ops.")
    modes = import_module("telegrad.utils._saving_modes")
    saved: dict[Any, list[Any]] = {}
    policy = policy_fn_or_list if callable(policy_fn_or_list) else _of_list(policy_fn_or_list)
    return modes.Saving(policy, saved), modes.Restoring(policy, saved, allow_cache_entry_mutation)


def _of_list(ops: Sequence[Any]) -> Callable[..., Any]:
    chosen = list(ops)

    def policy(ctx: SelectiveCheckpointContext, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_SAVE if op in chosen else CheckpointPolicy.PREFER_RECOMPUTE

    return policy


class GraphExecGroup:
    """A block of backward passes over parts of one graph: each checkpoint is computed again in every pass.

    In PyTorch it is computed at most once in the block.
    """

    _current: GraphExecGroup | None = None

    def __enter__(self) -> GraphExecGroup:
        if GraphExecGroup._current is not None:
            raise AutogradError(
                f"GraphExecGroup contexts cannot be nested. Already inside group {GraphExecGroup._current}"
            )
        GraphExecGroup._current = self
        return self

    def __exit__(self, *_: object) -> None:
        GraphExecGroup._current = None


class DefaultDeviceType:
    """The type of device whose random states checkpoints of CPU tensors are to keep; they keep all."""

    _default_device_type = "cuda"

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        """Set the type."""
        DefaultDeviceType._default_device_type = device

    @staticmethod
    def get_device_type() -> str:
        """Return the type."""
        return DefaultDeviceType._default_device_type


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """Return the indices of the GPUs that tensors among the arguments are on, and their random states."""
    indices = [argument.get_device() for argument in args if isinstance(argument, Tensor) and argument.is_cuda]
    return indices, [get_rng_state(index) for index in indices]


def set_device_states(devices: Sequence[int], states: Sequence[Tensor], *, device_type: str | None = None) -> None:
    """Put the generators of GPUs into states that ``get_device_states`` gave."""
    for device, state in zip(devices, states, strict=False):
        set_rng_state(state, device)
