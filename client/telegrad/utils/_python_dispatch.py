"""Modes and subclasses that answer operators below autograd, under the names of ``torch.utils._python_dispatch``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from telegrad._dispatch import handler as _handler  # it enters itself as who is asked
from telegrad._dispatch.aliasing import return_and_correct_aliasing as return_and_correct_aliasing
from telegrad._dispatch.asking import pop, push, without_innermost
from telegrad._ops.operand_classes import DISPATCHING, overrides, without_modes
from telegrad._tensor.tensor import Tensor

_ = _handler
__all__ = [
    "BaseTorchDispatchMode", "TorchDispatchMode", "is_in_torch_dispatch_mode", "is_traceable_wrapper_subclass",
    "return_and_correct_aliasing", "transform_subclass",
]  # fmt: skip


class TorchDispatchMode:
    """A block in which ``__torch_dispatch__(func, types, args, kwargs)`` of this object answers a thread's operators.

    ``func`` is an overload such as ``telegrad.ops.aten.mul.Tensor``. While the method runs the mode is left, so that
    ``func(*args, **kwargs)`` computes, and gradients are not recorded: autograd differentiates what is returned as the
    operator's result.
    """

    def __init__(self, _dispatch_key: Any = None) -> None:
        self._dispatch_key = _dispatch_key

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Any:
        self.__dict__.setdefault("_entered", []).append(push(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pop(self.__dict__["_entered"].pop())

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """Return a new mode."""
        return cls(*args, **kwargs)

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Whether this is one of PyTorch's compiler: it is not."""
        return False


class BaseTorchDispatchMode(TorchDispatchMode):
    """A mode that computes everything as it is."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _get_current_dispatch_mode() -> Any:
    return overrides.dispatch_modes[-1] if overrides.dispatch_modes else None


def _get_current_dispatch_mode_stack() -> list[Any]:
    return list(overrides.dispatch_modes)


def is_in_torch_dispatch_mode(include_infra_modes: bool = True) -> bool:
    """Whether the thread is in a mode."""
    return bool(overrides.dispatch_modes)


def is_in_any_mode_without_ignore_compile_internals() -> bool:
    """Whether the thread is in a mode."""
    return bool(overrides.dispatch_modes)


def _len_torch_dispatch_stack() -> int:
    return len(overrides.dispatch_modes)


@contextmanager
def _pop_mode_temporarily(k: Any = None) -> Iterator[Any]:
    with without_innermost() as mode:
        yield mode


@contextmanager
def _disable_current_modes() -> Iterator[list[Any]]:
    before = list(overrides.dispatch_modes)
    with without_modes():
        yield before


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """Whether something is a subclass that says what tensors it consists of: ``__tensor_flatten__``."""
    is_subclass = isinstance(t, Tensor) and type(t) is not Tensor
    return is_subclass and hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    """Whether a class says what tensors it consists of."""
    is_subclass = issubclass(t, Tensor) and t is not Tensor
    return is_subclass and hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")


def transform_subclass(
    t: Any, callback: Callable[[str, Any], Any], outer_size: Any = None, outer_stride: Any = None
) -> Any:
    """Return a subclass made anew of what ``callback(name, tensor)`` returns for each of its tensors."""
    outer_size = t.size() if outer_size is None else outer_size
    outer_stride = t.stride() if outer_stride is None else outer_stride
    names, context = t.__tensor_flatten__()
    changed = {name: callback(name, getattr(t, name)) for name in names}
    return type(t).__tensor_unflatten__(changed, context, outer_size, outer_stride)


def _is_dispatching(kind: type) -> bool:
    return kind in DISPATCHING
