"""Which callables and classes do nothing but compute: what a call of them gives depends on its arguments alone.

For telegrad's own it may also depend on the modes of the thread, which are a condition of every call.
"""

from __future__ import annotations

import enum
import math
import os
from contextlib import nullcontext
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final

from telegrad._session import own_code
from telegrad._session.grad_mode import ModeBlock
from telegrad._tensor.size import Size
from telegrad._tensor.tensor import Tensor
from telegrad.nn.parameter import Buffer, Parameter
from telegrad_protocol.dtypes import DType
from telegrad_protocol.memory_format import MemoryFormat
from telegrad_protocol.meta import Device

CONSTANTS: Final[frozenset[Any]] = frozenset(
    (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), DType, Device, MemoryFormat, slice, range)
)  # fmt: skip
"""Classes of values that cannot change."""
BY_VALUE: Final = frozenset((int, float, complex, str, bytes))
"""Classes of values of which equal ones may be one object or several."""
CONTAINERS: Final[frozenset[Any]] = frozenset((list, dict, set))
"""Classes whose content may change; it is known where the container was made in the call, or is a condition."""
SEQUENCES: Final[frozenset[Any]] = frozenset((tuple, Size))
TENSORS: Final[frozenset[Any]] = frozenset((Tensor, Parameter, Buffer))
ITERATORS: Final[frozenset[Any]] = frozenset((
    zip, enumerate, map, filter, reversed, type({}.keys()), type({}.values()), type({}.items()), type(iter([])),
    type(iter(())), type(iter(range(0))), type(reversed([])), type(_ for _ in ()),
))  # fmt: skip
"""Classes of what is iterated over once; their sources were looked at when they were made."""
MAKERS_OF_TUPLES: Final[frozenset[Any]] = frozenset((zip, enumerate, type({}.items())))
"""Those that make the tuples that they give."""

BUILTINS: Final[frozenset[Any]] = frozenset((
    abs, all, any, bool, bytes, callable, complex, dict, divmod, enumerate, filter, float, format, int, isinstance,
    issubclass, len, list, map, max, min, pow, range, repr, reversed, round, set, slice, sorted, str, sum, tuple, type,
    zip,
))  # fmt: skip
_MODULES: Final = frozenset((math.__name__, "cmath"))
_READS: Final = frozenset(("copy", "count", "get", "index", "items", "keys", "values", "__len__", "__contains__"))
"""Methods of containers that change nothing."""
_TENSOR_ATTRIBUTES: Final = frozenset((
    "H", "T", "mH", "mT", "data", "device", "dtype", "imag", "real", "itemsize", "layout", "nbytes", "ndim", "shape",
    "requires_grad", "is_cpu", "is_cuda", "is_meta", "is_nested", "is_quantized", "is_sparse",
))  # fmt: skip
_TENSOR_EFFECTS: Final = frozenset((
    "backward", "register_hook", "register_post_accumulate_grad_hook", "requires_grad_", "retain_grad", "apply_",
    "map_", "set_", "share_memory_", "record_stream", "__reduce_ex__", "__deepcopy__", "__setstate__", "is_set_to",
    "_is_view", "_gradient_edge", "_number_of_gradient",
))  # fmt: skip
"""Methods that have effects, or tell of more than how a tensor lies."""
_FOLDER: Final = os.path.dirname(os.path.dirname(os.path.abspath(own_code.__file__))) + os.sep
_OPERATIONS: Final = tuple(
    [_FOLDER + part for part in ("_ops" + os.sep, "_functions" + os.sep, os.path.join("nn", "functional.py"),
                                 os.path.join("nn", "_functional") + os.sep,
                                 os.path.join("_tensor", "dtype_limits.py"))]
)  # fmt: skip
"""Where the functions are that run operations."""
_SETTINGS: Final = _FOLDER + os.path.join("_functions", "process_settings.py")
"""Where functions are that change or tell settings of the process, or read files."""
_QUESTIONS: Final = frozenset((
    "finfo", "iinfo", "is_autocast_enabled", "is_compiling", "is_dynamo_compiling", "is_grad_enabled",
    "is_inference_mode_enabled", "is_scripting", "is_tensor", "is_tracing",
))  # fmt: skip
"""Names of telegrad's functions that ask for modes, or for what never changes."""


def is_plain(kind: type) -> bool:
    """Whether operators on values of a class compute, and do nothing else."""
    return (
        kind in CONSTANTS or kind in TENSORS or kind in SEQUENCES or kind in CONTAINERS
        or kind in ITERATORS or issubclass(kind, type)
        or ((issubclass(kind, enum.Enum) or is_named_tuple(kind)) and not has_own_operators(kind))
    )  # fmt: skip


_ARITHMETIC: Final = (
    "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow", "lshift", "rshift", "and", "xor",
    "or",
)  # fmt: skip
_OPERATORS: Final = frozenset((
    *[f"__{prefix}{name}__" for name in _ARITHMETIC for prefix in ("", "r", "i")],
    "__bool__", "__len__", "__contains__", "__getitem__", "__iter__", "__neg__", "__pos__", "__abs__", "__invert__",
    "__index__", "__int__", "__float__",
))  # fmt: skip
"""Methods by which classes answer operators, comparisons aside."""
_COMPARISONS: Final = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")


_OF_TENSORS: Final = tuple(sorted(name for name in (*_OPERATORS, *_COMPARISONS, "__setitem__") if name in vars(Tensor)))


def operators_of_tensors() -> tuple[str, ...]:
    """Return the names of the methods by which tensors answer operators; empty where the program has replaced one."""
    methods = [getattr(Tensor, name) for name in _OF_TENSORS]
    return _OF_TENSORS if all([isinstance(one, FunctionType) and is_own(one) for one in methods]) else ()


def is_opaque(kind: Any) -> bool:
    """Whether objects of a class are true, equal to themselves alone, and answer no operators."""
    return all([has_no_operators(one) for one in kind.__mro__[:-1]])


def has_no_operators(kind: type) -> bool:
    """Whether a class itself, its parents aside, has no methods that answer operators."""
    return _OPERATORS.union(_COMPARISONS).isdisjoint(vars(kind))


def has_own_operators(kind: type) -> bool:
    """Whether a class that is otherwise plain has operators of the program's own."""
    return not has_no_operators(kind)


def is_sequence(kind: type) -> bool:
    """Whether objects of a class hold others, and always the same."""
    return kind in SEQUENCES or (is_named_tuple(kind) and not has_own_operators(kind))


def is_named_tuple(kind: type) -> bool:
    """Whether a class is that of a named tuple, without a constructor of the program's own."""
    return (
        issubclass(kind, tuple) and hasattr(kind, "_fields") and kind.__init__ is object.__init__
        and getattr(kind.__new__, "__globals__", {}).get("__name__", "").startswith(_OF_NAMED_TUPLES)
    )  # fmt: skip


_OF_NAMED_TUPLES: Final = ("namedtuple_", "telegrad")
"""How the names of the modules begin in which constructors of named tuples are made: Python's, and telegrad's own."""


def is_of_named_tuple(owner: Any, function: Any) -> bool:
    """Whether a method is one that every named tuple has."""
    kind = owner if isinstance(owner, type) else type(owner)
    return is_named_tuple(kind) and function.__name__ in ("_make", "_replace", "_asdict")


def is_tensor_attribute(name: str) -> bool:
    """Whether an attribute of tensors follows from how these lie, or is a view."""
    return name in _TENSOR_ATTRIBUTES


def is_tensor_method(function: Any, name: str) -> bool:
    """Whether a method of tensors is an operation, or tells how the tensor lies."""
    return name not in _TENSOR_EFFECTS and isinstance(function, FunctionType) and is_own(function)


def is_operation(function: Any) -> bool:
    """Whether a function is telegrad's own and runs operations, or asks for modes."""
    if not isinstance(function, FunctionType):
        return False
    file = function.__code__.co_filename
    if file == _SETTINGS:
        return False
    return file.startswith(_OPERATIONS) or (file.startswith(_FOLDER) and function.__name__ in _QUESTIONS)


def tells_of_settings(function: Any) -> bool:
    """Whether one of these functions, called without arguments, may tell of settings of the process."""
    return isinstance(function, FunctionType) and function.__name__ not in _QUESTIONS


def is_own(function: FunctionType) -> bool:
    """Whether a function is telegrad's own."""
    return own_code.is_own(function.__code__.co_filename)


def is_block(kind: Any) -> bool:
    """Whether objects of a class set modes of the thread for a block, and set them back, or do nothing."""
    if kind is nullcontext:
        return True
    return isinstance(kind, type) and issubclass(kind, ModeBlock) and kind.__module__.startswith("telegrad")


def is_computing(function: Any) -> bool:
    """Whether a callable of Python's own computes, and does nothing else."""
    try:
        if function in BUILTINS:
            return True
    except TypeError:  # a bound method of something without a hash
        return False
    return isinstance(function, BuiltinFunctionType) and getattr(function, "__module__", None) in _MODULES


def is_value_class(kind: Any) -> bool:
    """Whether a class makes values that cannot change."""
    return isinstance(kind, type) and (kind in (Device, Size) or is_named_tuple(kind))


def reads_only(name: str) -> bool:
    """Whether the method of a container with this name changes nothing."""
    return name in _READS
