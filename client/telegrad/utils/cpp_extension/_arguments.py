"""Arguments of an extension's functions: as they travel, and whether they fit the types that C++ has for them."""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import Any, Final

import numpy as np

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentTypeError
from telegrad_protocol.extension_messages import COMPLEX, DEVICE, DICT, DTYPE, ENUMERATOR, INSTANCE, LIST, SET, TUPLE
from telegrad_protocol.meta import Device

from ._classes import ExtensionInstance
from ._enumerations import ExtensionEnumeration

_KINDS: Final[dict[str, Any]] = {
    "str": str, "torch.dtype": DType, "torch.device": (Device, str), "list": (list, tuple), "tuple": (list, tuple),
    "object": object, "dict": dict, "set": (set, frozenset),
    "torch.Tensor": (Tensor, NoneType), "None": NoneType, "bool": (bool, np.bool_),
    "float": (int, float, np.integer, np.floating), "Number": (int, float, complex, np.number),
    "complex": (int, float, complex, np.number), "torch.Generator": NoneType, "*args": tuple, "**kwargs": dict,
}  # fmt: skip
ARRAY: Final = "numpy.ndarray"
"""How the types of NumPy's arrays begin; the type of their elements stands behind it, as ``numpy.ndarray[float32]``."""
CLASS: Final = "class "
"""How the types of parameters begin whose values are instances of a class of the extension."""
_PLAIN: Final = frozenset((int, float, bool, str, type(None)))


def encode(value: Any, tensors: list[Tensor], session: Any) -> Any:
    """Return an argument as it travels to a session; its tensors are added to ``tensors``."""
    kind = value.__class__
    if kind in _PLAIN:
        return value
    if isinstance(value, Tensor):
        tensors.append(value)
        return (value._id,)
    if isinstance(value, (list, tuple)):
        return LIST if isinstance(value, list) else TUPLE, [encode(item, tensors, session) for item in value]
    if kind is DType:
        return DTYPE, value.code
    if kind is Device:
        return DEVICE, value.name
    if isinstance(value, dict):
        return DICT, [(encode(k, tensors, session), encode(v, tensors, session)) for k, v in value.items()]
    if isinstance(value, ExtensionInstance):
        return INSTANCE, value._number(session)
    if isinstance(value, ExtensionEnumeration):
        return ENUMERATOR, value._number, value._value
    if isinstance(value, (set, frozenset)):
        return SET, [encode(item, tensors, session) for item in value]
    if callable(value):
        raise ArgumentTypeError(
            "an extension's function cannot call Python, which runs in the client: return to Python what the "
            "function is to be called with, and give what it returns to the next call"
        )
    if isinstance(value, (complex, np.complexfloating)):
        return COMPLEX, value.real, value.imag
    for number in (bool, int, float, str):
        if isinstance(value, number):
            return number(value)
    if isinstance(value, np.generic):
        return value.item()
    raise ArgumentTypeError(f"an extension's function cannot take a {kind.__name__}")


def parts_of(listed: str) -> list[str]:
    """Return the types that a list such as ``int, Dict[str, int]`` names."""
    parts, depth = [""], 0
    for letter in listed:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def fits(value: Any, wanted: str) -> bool:
    """Whether a value is of a type that C++ names, as ``Optional[List[int]]``."""
    if wanted.startswith(CLASS):
        return getattr(value, "_is_of_extension", False) and any(
            wanted[len(CLASS) :] == vars(k).get("_path") for k in type(value).__mro__
        )
    if wanted[-1] == "]":
        name, _, inner = wanted[:-1].partition("[")
        return _GENERIC[name](value, parts_of(inner))
    if wanted == "int":
        return (isinstance(value, int) and not isinstance(value, float)) or isinstance(value, np.integer)
    return isinstance(value, _KINDS[wanted])


def _all(values: Any, wanted: str) -> bool:
    return all(fits(value, wanted) for value in values)


_GENERIC: Final[dict[str, Callable[[Any, list[str]], bool]]] = {
    ARRAY: lambda value, parts: isinstance(value, (np.ndarray, np.generic, list, tuple, int, float, complex)),
    "Optional": lambda value, parts: value is None or fits(value, parts[0]),
    "Union": lambda value, parts: any(fits(value, part) for part in parts),
    "List": lambda value, parts: isinstance(value, (list, tuple)) and _all(value, parts[0]),
    "Set": lambda value, parts: isinstance(value, (set, frozenset)) and _all(value, parts[0]),
    "Tuple": lambda value, parts: (
        isinstance(value, (list, tuple)) and len(value) == len(parts) and all(map(fits, value, parts))
    ),
    "Dict": lambda value, parts: isinstance(value, dict) and _all(value, parts[0]) and _all(value.values(), parts[1]),
}
