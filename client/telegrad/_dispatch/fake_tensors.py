"""Tensors that have a shape, a type and a device, and no elements: the names of ``torch._subclasses``.

Their operations run the shape rules that every call runs, in a session of their own without a server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any
from weakref import WeakValueDictionary

from telegrad._ops.functions import function
from telegrad._ops.operand_classes import overrides
from telegrad._ops.overriding import disabled, disabled_torch_function
from telegrad._ops.shape_operands import mapped, shape_of
from telegrad._session.current import using
from telegrad._session.shapes.shape_session import ShapeSession, device_session
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import get_default_dtype
from telegrad_protocol.errors import ArgumentTypeError, NotSupportedError

from .asking import pop, push, without_dispatch

__all__ = [
    "DataDependentOutputException", "DynamicOutputShapeException", "FakeTensor", "FakeTensorMode",
    "UnsupportedFakeTensorException", "is_fake", "maybe_get_fake_mode", "unset_fake_temporarily",
]  # fmt: skip


class UnsupportedFakeTensorException(NotSupportedError, RuntimeError):
    """A tensor that cannot become a fake one."""


class DynamicOutputShapeException(NotSupportedError, RuntimeError):
    """The shape of a result depends on elements; ``func`` is the name of the operation."""

    def __init__(self, func: str) -> None:
        super().__init__(f"{func}: the shape of its result depends on the elements, which fake tensors do not have")
        self.func = func


class DataDependentOutputException(NotSupportedError, RuntimeError):
    """Elements were asked for; ``func`` is the name of the operation."""

    def __init__(self, func: str) -> None:
        super().__init__(f"{func}: a fake tensor has no elements")
        self.func = func


def _refused(what: str) -> Exception:
    return DynamicOutputShapeException(what) if what == "describe" else DataDependentOutputException(what)


class FakeTensor(Tensor):
    """A tensor without elements on a device that need not be there. ``FakeTensorMode`` makes them."""

    __torch_function__: Any = classmethod(disabled_torch_function)
    fake_mode: FakeTensorMode
    constant = None

    @property
    def fake_device(self) -> Any:
        """The device that it says it is on."""
        return self._meta.device

    @staticmethod
    def from_tensor(t: Tensor, fake_mode: FakeTensorMode) -> Any:
        """Return a fake tensor that looks like ``t``."""
        return fake_mode.from_tensor(t)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotSupportedError("FakeTensor: its operations are answered by its mode")

    def _run_function(self, public: str, args: Any, kwargs: Any) -> Any:
        return self.fake_mode._run_function(public, args, kwargs)

    def __repr__(self) -> str:
        notes = [f"size={tuple(self._meta.shape)}"]
        if self.device.type != "cpu":
            notes.insert(0, f"device={str(self.device)!r}")
        if self.dtype is not get_default_dtype():
            notes.append(f"dtype=torch.{self.dtype.name}")
        fn = self.grad_fn
        notes += [f"grad_fn=<{type(fn).__name__}>"] if fn else ["requires_grad=True"] if self.requires_grad else []
        return f"FakeTensor(..., {', '.join(notes)})"


class FakeTensorMode:
    """A block in which all tensors that are made are fake; ``from_tensor`` makes fake ones of others.

    Operands that are no fake tensors are refused, unless ``allow_non_fake_inputs``.
    """

    def __init__(
        self, *, allow_fallback_kernels: bool = True, allow_non_fake_inputs: bool = False, shape_env: Any = None,
        static_shapes: bool | None = None, export: bool = False,
    ) -> None:  # fmt: skip
        self.allow_non_fake_inputs = allow_non_fake_inputs
        self.shape_env, self.static_shapes = shape_env, static_shapes
        self._session = device_session(_refused)
        self._session.adopt = self._adopted
        self._made: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self._sources: dict[int, Any] = {}
        self._entered: list[int] = []

    def __enter__(self) -> FakeTensorMode:
        self._entered.append(push(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pop(self._entered.pop())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.name() == "aten::lift_fresh":  # of data of the program, which is no operand that was left unconverted
            return self.from_tensor(args[0])
        return func(*args, **(kwargs or {}))

    def from_tensor(
        self, tensor: Tensor, *, static_shapes: bool | None = None, source: Any = None, symbolic_context: Any = None,
        trace: bool = True,
    ) -> Any:  # fmt: skip
        """Return the fake tensor of a tensor: the same one each time, as long as it is used.

        Raises ArgumentTypeError for what is no tensor.
        """
        if not isinstance(tensor, Tensor):
            raise ArgumentTypeError(f"from_tensor: expected a tensor, not {type(tensor).__name__}")
        if tensor._session is self._session:
            return tensor
        known = self._made.get(id(tensor))
        if known is None or self._sources.get(id(tensor)) != (tensor._id, tensor._meta):
            known = self._adopted(shape_of(tensor, self._session))
            if tensor.requires_grad:
                known.requires_grad_()
            known._is_param = type(tensor).__name__ == "Parameter"
            self._made[id(tensor)] = known
            self._sources[id(tensor)] = (tensor._id, tensor._meta)
        return known

    def of_meta(self, meta: Any, requires_grad: bool) -> Any:
        """Return a fake tensor of this shape and type."""
        made = self._adopted(Tensor(self._session, self._session.new_id(), meta))
        return made.requires_grad_() if requires_grad else made

    def _adopted(self, tensor: Tensor) -> Any:
        """Return a tensor of the mode's session as a fake tensor."""
        if tensor.__class__ is Tensor and tensor._session is self._session:
            tensor.__class__ = FakeTensor
            tensor.fake_mode = self  # type: ignore[attr-defined]
        return tensor

    def fakes(self, tensor: Tensor) -> bool:
        """Whether a tensor is none of this mode's, so that one takes its place."""
        return tensor._session is not self._session

    def _operand(self, public: str, tensor: Tensor) -> Any:
        if tensor._session is self._session:
            return tensor
        if isinstance(tensor._session, ShapeSession) or self.allow_non_fake_inputs:
            return self.from_tensor(tensor)
        raise NotFakeError(
            f"Please convert all Tensors to FakeTensors first or instantiate FakeTensorMode with "
            f"'allow_non_fake_inputs'. Found in {public}({tensor._meta})"
        )

    def _run_function(self, public: str, args: Any, kwargs: Any) -> Any:
        """Run a function on fake tensors: its results are fake too."""
        given, named = mapped((args, kwargs), lambda tensor: self._operand(public, tensor))
        with without_dispatch(), disabled(), using(self._session):
            try:
                result = function(public)(*given, **named)
            except DynamicOutputShapeException:
                raise DynamicOutputShapeException(f"aten.{public}") from None
        return mapped(result, self._adopted)


class NotFakeError(ArgumentTypeError, AssertionError):
    """An operand is no fake tensor, and the mode does not take it for one."""


def is_fake(x: Any) -> bool:
    """Whether something is a fake tensor."""
    return isinstance(x, FakeTensor)


def maybe_get_fake_mode(t: Any) -> FakeTensorMode | None:
    """Return the mode that has made a fake tensor; None for other tensors."""
    return t.fake_mode if isinstance(t, FakeTensor) else None


@contextmanager
def unset_fake_temporarily() -> Iterator[Any]:
    """Leave fake modes within the block; yields the innermost of them."""
    before = overrides.dispatch_modes
    fake = [mode for mode in before if isinstance(mode, FakeTensorMode)]
    overrides.dispatch_modes = tuple([mode for mode in before if not isinstance(mode, FakeTensorMode)])
    try:
        yield fake[-1] if fake else None
    finally:
        overrides.dispatch_modes = before
