"""Arguments of an extension's functions: as they travel, and whether they fit the types that C++ has for them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentTypeError
from telegrad_protocol.extension_messages import COMPLEX, DEVICE, DICT, DTYPE, INSTANCE, LIST, TUPLE
from telegrad_protocol.meta import Device

from ._classes import ExtensionInstance

_KINDS: Final[dict[str, Any]] = {
    "str": str, "torch.dtype": DType, "torch.device": (Device, str), "list": (list, tuple), "tuple": (list, tuple),
    "object": object,
}  # fmt: skip
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
    if isinstance(value, (complex, np.complexfloating)):
        return COMPLEX, value.real, value.imag
    for number in (bool, int, float, str):
        if isinstance(value, number):
            return number(value)
    if isinstance(value, np.generic):
        return value.item()
    raise ArgumentTypeError(f"an extension's function cannot take a {kind.__name__}")


def fits(value: Any, wanted: str) -> bool:
    """Whether a value is of a type that C++ names, as ``Optional[List[int]]``."""
    if wanted.startswith("Optional["):
        return value is None or fits(value, wanted[9:-1])
    if wanted == "torch.Tensor":
        return isinstance(value, Tensor) or value is None
    if wanted == "int":
        return (isinstance(value, int) and not isinstance(value, float)) or isinstance(value, np.integer)
    if wanted == "float":
        return isinstance(value, (int, float, np.integer, np.floating))
    if wanted == "bool":
        return isinstance(value, (bool, np.bool_))
    if wanted in ("Number", "complex"):
        return isinstance(value, (int, float, complex, np.number))
    if wanted.startswith("List["):
        return isinstance(value, (list, tuple)) and all(fits(item, wanted[5:-1]) for item in value)
    if wanted.startswith(CLASS):
        return isinstance(value, ExtensionInstance) and wanted[len(CLASS) :] in [
            k.__name__ for k in type(value).__mro__
        ]
    if wanted.startswith("Tuple["):
        return isinstance(value, (list, tuple))
    return isinstance(value, _KINDS.get(wanted, dict))
