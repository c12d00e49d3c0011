"""Python's operators on tensors: arithmetic, comparisons, indexing, iteration and ``in``.

An operand that is a NumPy array is uploaded first; an operand of another kind gives ``NotImplemented``, so that Python
asks its class.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from telegrad._ops import functions as _functions
from telegrad._ops.functions import UnmadeMethod, function, method
from telegrad._ops.operand_classes import OVERRIDING, is_handled, modes_entered, overrides, patterns_of
from telegrad._ops.outputs import check_distinct
from telegrad._ops.overriding import UnansweredError, handle_torch_function, has_torch_function_unary
from telegrad._session.parts import capturing
from telegrad._session.session import ClientSession
from telegrad._session.shapes.shape_session import ShapeSession
from telegrad._tensor import host_arrays as _host_arrays
from telegrad._tensor import indexing as _indexing
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, DeviceError
from telegrad_protocol.meta import Device, Meta
from telegrad_protocol.ops import PUBLIC

_BINARY = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "pow", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}  # fmt: skip
_IN_PLACE = [name for name, public in _BINARY.items() if f"{public}_" in PUBLIC]
_COMPARISONS = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
_UNARY = {"neg": "neg", "abs": "abs", "invert": "bitwise_not", "pos": "positive"}
_NUMBERS = (Tensor, bool, int, float, complex)
_USUAL = frozenset(_NUMBERS)


def operand(self: Tensor, other: Any, public: str) -> Any:
    """Return the other operand of an operator as an operation takes it; a NumPy array becomes a tensor.

    PyTorch leaves arrays to NumPy, by whose rules float32 and int64 give float64; so the array gets the wider type.
    """
    if isinstance(other, np.generic):
        return other.item()
    if isinstance(other, np.ndarray):
        return upload_array(_widened(self._meta.dtype, other, public), self._meta.device, self._session)
    return NotImplemented


def _widened(dtype: DType, array: np.ndarray[Any, Any], public: str) -> np.ndarray[Any, Any]:
    if dtype in _host_arrays.UNKNOWN_TO_NUMPY:
        return array
    common = np.result_type(dtype.name, array.dtype)
    if public == "div" and common.kind in "biu":
        common = np.dtype(np.float64)
    return array.astype(common) if common.kind in "fc" else array


def upload_array(array: np.ndarray[Any, Any], device: Device, session: ClientSession) -> Tensor:
    """Return a tensor with the elements of an array, in the array's type."""
    dtype = _host_arrays.dtype_of(array)
    meta = Meta.of(array.shape, dtype, device)
    return Tensor(session, session.upload(meta, _host_arrays.bytes_of(array, dtype), session.sites.current()), meta)


_REPORTED = (
    "add sub mul truediv mod matmul ne lt le gt ge radd rmul rand ror rxor iadd isub imul itruediv ifloordiv imod"
)
"""Operators that classes and modes see as the method that computes them; they see the others as themselves."""
_NAMES = {"rtruediv": "__rdiv__", "pow": "pow", "ipow": "pow_"}
"""What PyTorch's operators are called that are not called as Python calls them."""


def _name_as_method(run: Any, name: str) -> Any:
    """Name a function as the method of ``Tensor`` that it is; classes and modes that override it are given this one."""
    run.__name__, run.__qualname__, run.__module__ = name, f"Tensor.{name}", Tensor.__module__
    return run


def _overridden(apply: Any, name: str, public: str) -> Callable[[Tensor, Any], Any]:
    """Return what asks the classes and the mode that override an operator."""
    is_method = name in _REPORTED.split()
    _name_as_method(apply, _NAMES.get(name, f"__{name}__"))

    def ask(self: Tensor, other: Any) -> Any:
        reported = method(public) if is_method else apply
        try:
            return handle_torch_function(reported, (self, other), self, other)
        except UnansweredError:
            return NotImplemented

    return ask


def _operator(name: str, public: str) -> Callable[[Tensor, Any], Any]:
    """Return an operator; it calls what came before without the function in between."""
    run, patterns = function(public), patterns_of(public)

    def apply(self: Tensor, other: Any) -> Any:
        kind = type(other)
        if kind in _USUAL or isinstance(other, _NUMBERS):
            pattern = patterns.get((type(self), kind))
            if pattern is not None:
                try:
                    return _functions.call(pattern, (self, other))
                except ArgumentTypeError:  # ``run`` knows other ways
                    pass
            return ask(self, other) if _is_overridden(self) or _is_overridden(other) else run(self, other)
        if has_torch_function_unary(other):
            return ask(self, other)
        other = operand(self, other, public)
        return other if other is NotImplemented else run(self, other)

    ask = _overridden(apply, name, public)
    return apply


def _reflected(name: str, public: str) -> Callable[[Tensor, Any], Any]:
    run, patterns = function(public), patterns_of(public)

    def apply(self: Tensor, other: Any) -> Any:
        kind = type(other)
        if kind in _USUAL or isinstance(other, _NUMBERS):
            pattern = patterns.get((kind, type(self)))
            if pattern is not None:
                try:
                    return _functions.call(pattern, (other, self))
                except ArgumentTypeError:
                    pass
            return ask(self, other) if _is_overridden(self) or _is_overridden(other) else run(other, self)
        if has_torch_function_unary(other):
            return ask(self, other)
        other = operand(self, other, "")
        return other if other is NotImplemented else run(other, self)

    ask = _overridden(apply, name, public)
    return apply


_UFUNCS: dict[Any, str] = {
    np.add: "add", np.subtract: "sub", np.multiply: "mul", np.true_divide: "div", np.floor_divide: "floor_divide",
    np.remainder: "remainder", np.power: "pow", np.matmul: "matmul", np.bitwise_and: "bitwise_and",
    np.bitwise_or: "bitwise_or", np.bitwise_xor: "bitwise_xor", np.left_shift: "bitwise_left_shift",
    np.right_shift: "bitwise_right_shift", np.equal: "eq", np.not_equal: "ne", np.less: "lt", np.less_equal: "le",
    np.greater: "gt", np.greater_equal: "ge",
}  # fmt: skip
"""NumPy's functions that its arrays' operators call."""


def _array_ufunc(self: Tensor, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """Compute a function of NumPy's: what an operator means on the server, and all else here, from copies."""
    name = _UFUNCS.get(ufunc)
    if name is not None and method == "__call__" and not kwargs:
        operands = [item if isinstance(item, _NUMBERS) else operand(self, item, name) for item in inputs]
        return NotImplemented if any(item is NotImplemented for item in operands) else function(name)(*operands)
    if any(isinstance(target, Tensor) for target in kwargs.get("out", ())):
        return NotImplemented
    arrays = [item.numpy() if isinstance(item, Tensor) else item for item in inputs]
    result = getattr(ufunc, method)(*arrays, **kwargs)
    if "out" in kwargs or not isinstance(result, (np.ndarray, np.generic)):
        return result
    array = np.asarray(result)
    return upload_array(array.astype(np.uint8) if array.dtype == np.bool_ else array, self.device, self._session)


def _delitem(self: Tensor, index: Any) -> None:
    raise ArgumentTypeError("del: elements of a tensor cannot be deleted; select those that are to stay")


def _is_overridden(tensor: Any) -> bool:
    """Whether the class of a tensor, or a mode, is asked for what functions of this thread give."""
    if modes_entered and overrides.modes:
        return True
    return tensor.__class__ is not Tensor and tensor.__class__ in OVERRIDING and not overrides.are_disabled


def _getitem(self: Tensor, index: Any) -> Any:
    if (modes_entered or type(self) is not Tensor) and _is_overridden(self):
        return handle_torch_function(_getitem, (self,), self, index)
    if type(index) is int and type(self) is Tensor and self._meta.ndim:
        return _select(self, 0, index)
    return _indexing.getitem(
        self, index, _run, lambda array: upload_array(array, self._meta.device, self._session), _position
    )


def _position(item: Tensor) -> int | None:
    """Return the integer in a 0-d tensor; None where it stands for one that is not known yet, so that it is looked up.

    That is so in graphs that are traced, captured or exported, for tensors without elements, and in ``vmap``.
    """
    is_traced = bool(overrides.dispatch_modes) and not overrides.ignores_dispatch
    if is_traced or is_handled(item.__class__) or isinstance(item._session, ShapeSession) or capturing.current():
        return None
    return operator.index(item)


def _setitem(self: Tensor, index: Any, value: Any) -> None:
    if _is_overridden(self) or _is_overridden(value):
        handle_torch_function(_setitem, (self, value), self, index, value)
        return
    if isinstance(value, Tensor) and value._session is not self._session:
        raise DeviceError("the value belongs to another session than the tensor; bring it over with numpy()")
    _indexing.setitem(self, index, value, _assign, lambda array: upload_array(array, self._meta.device, self._session))


def _assign(name: str, *args: Any, **options: Any) -> Any:
    """Run an operation for an assignment, which is refused where elements share memory, whatever writes it."""
    if name == "fill_":
        check_distinct("setitem", args[0]._meta)
    return _run(name, *args, **options)


def _run(name: str, *args: Any, **options: Any) -> Any:
    run = _MADE.get(name) or function(name)
    return run(*args, **options)


_MADE = {name: function(name) for name in ("select", "slice", "unsqueeze")}
_select = _MADE["select"]


def _iter(self: Tensor) -> Iterator[Tensor]:
    if not self._meta.ndim:
        raise ArgumentTypeError("iteration over a 0-d tensor")
    return iter(self.unbind(0))


def _reversed(self: Tensor) -> Tensor:
    """Return the tensor backwards along its first dimension, as ``reversed`` does of a sequence."""
    return self.flip(0) if self._meta.ndim else self


def _contains(self: Tensor, element: Any) -> bool:
    if not isinstance(element, (*_NUMBERS, np.generic)):
        raise ArgumentError(
            f"in: Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}"
        )
    matches: Any = self == element
    return bool(matches.any())


METHODS: dict[str, Any] = {
    **{f"__{name}__": _operator(name, public) for name, public in {**_BINARY, **_COMPARISONS}.items()},
    **{f"__r{name}__": _reflected(f"r{name}", public) for name, public in _BINARY.items()},
    **{f"__i{name}__": _operator(f"i{name}", f"{_BINARY[name]}_") for name in _IN_PLACE},
    **{f"__{name}__": UnmadeMethod(f"__{name}__", public) for name, public in _UNARY.items()},
    "__getitem__": _name_as_method(_getitem, "__getitem__"),
    "__setitem__": _name_as_method(_setitem, "__setitem__"), "__delitem__": _delitem,
    "__array_ufunc__": _array_ufunc, "__iter__": _iter, "__contains__": _contains,
    "__reversed__": _reversed,
}  # fmt: skip
METHODS["__rdiv__"] = METHODS["__rtruediv__"]
