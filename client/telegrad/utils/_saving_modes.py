"""The modes of a selective checkpoint: one saves results of operators, the other has them instead of computing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import AutogradError

from ._python_dispatch import TorchDispatchMode
from ._pytree import tree_map_only
from ._selective_checkpoint import CheckpointPolicy, SelectiveCheckpointContext

_OFFLOADED = (CheckpointPolicy.MUST_CPU_OFFLOAD, CheckpointPolicy.PREFER_CPU_OFFLOAD)
_SAVED = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE, *_OFFLOADED)
Policy = Callable[..., Any]


def _wanted(policy: Policy, is_recompute: bool, func: Any, args: Any, kwargs: Any, result: Any = None) -> Any:
    """Return what a policy says of an operator, as a policy; a bool is one of PyTorch's older policies."""
    answer = policy(SelectiveCheckpointContext(is_recompute=is_recompute, op_output=result), func, *args, **kwargs)
    if isinstance(answer, bool):
        return CheckpointPolicy.MUST_SAVE if answer else CheckpointPolicy.PREFER_RECOMPUTE
    return answer


def _is_ignored(func: Any) -> bool:
    return func.__name__.startswith("detach.") or bool(getattr(func, "is_view", False))


class Saving(TorchDispatchMode):
    """The first run."""

    def __init__(self, policy: Policy, saved: dict[Any, list[Any]]) -> None:
        super().__init__()
        self._policy, self._saved = policy, saved

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        result = func(*args, **named)
        if _is_ignored(func):
            return result
        wanted = _wanted(self._policy, False, func, args, named, result)
        if wanted in _SAVED:
            is_offloaded = wanted in _OFFLOADED

            def keep(tensor: Tensor) -> _Kept:
                return _Kept((tensor.device, tensor.detach().to("cpu") if is_offloaded else tensor.detach()))

            self._saved.setdefault(func, []).append(tree_map_only(Tensor, keep, result))
        return result


class _Kept(tuple[Any, Any]):
    """A device and a tensor, which a tree does not take apart."""


class Restoring(TorchDispatchMode):
    """The run within the backward pass."""

    def __init__(self, policy: Policy, saved: dict[Any, list[Any]], allows_mutation: bool) -> None:
        super().__init__()
        self._policy, self._saved, self._allows_mutation = policy, saved, allows_mutation

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if _is_ignored(func) or _wanted(self._policy, True, func, args, named) not in _SAVED:
            return func(*args, **named)
        if not self._saved.get(func):
            raise AutogradError(
                f"{func} was called again more often than it was saved: the function must compute the same each time, "
                "and a selective checkpoint can be differentiated once"
            )
        return _restored(self._saved[func].pop(0))


def _restored(kept: Any) -> Any:
    if isinstance(kept, _Kept):
        device, tensor = kept
        return tensor.to(device)
    if isinstance(kept, (tuple, list)):
        return type(kept)([_restored(part) for part in kept])
    return kept
