"""Parameters of an operation's contract: the values that a kind of parameter takes, and their form in messages.

A kind has a description for error messages, a canonical hashable form, and a wire form made of MessagePack's own types.
Knows nothing of operations.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, cast

from telegrad_protocol.dtypes import as_dtype, of_code
from telegrad_protocol.errors import ArgumentError, ProtocolError
from telegrad_protocol.meta import Device, Meta

IsTensor = Callable[[Any], bool]
Accepted = tuple[bool, Any]
_REFUSED: Accepted = (False, None)
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1


class Kind:
    """A kind of parameter: which values it takes, and how they are encoded and decoded."""

    __slots__ = ("accept", "decode", "described", "encode", "holds_tensors", "name")

    def __init__(
        self,
        name: str,
        described: str,
        accept: Callable[[Any, IsTensor], Accepted],
        *,
        holds_tensors: bool = False,
        encode: Callable[[Any], Any] | None = None,
        decode: Callable[[Any], Any] | None = None,
    ) -> None:
        self.name = name
        self.described = described
        self.accept = accept
        self.holds_tensors = holds_tensors
        self.encode = encode
        self.decode = decode


class Param:
    """One parameter of a contract: its name, kind and default, and whether it is keyword-only."""

    __slots__ = ("aliases", "default", "keyword_only", "kind", "name", "required", "varargs")

    def __init__(
        self, name: str, kind: Kind, default: Any = inspect.Parameter.empty, keyword_only: bool = False,
        varargs: bool = False,
    ) -> None:  # fmt: skip
        self.name = name
        self.kind = kind
        self.default = default
        self.keyword_only = keyword_only
        self.varargs = varargs
        self.required = default is inspect.Parameter.empty
        self.aliases = _ALIASES.get(name, ())

    def __str__(self) -> str:
        return self.name if self.required else f"{self.name}={self.default!r}"


_ALIASES: dict[str, tuple[str, ...]] = {
    "input": ("self", "x"), "dim": ("axis",), "keepdim": ("keepdims",),
    "A": ("input", "self"), "tau": ("input2",), "B": ("self", "input"), "b": ("self", "input", "to"),
    "a": ("from",), "low": ("from",), "shape": ("size",), "split_size_or_sections": ("split_size",),
    "indices_or_sections": ("indices", "sections"), "other": ("input3",), "L": ("input2",), "tensor": ("self", "input"),
}  # fmt: skip


def _is_int(value: Any) -> bool:
    return isinstance(value, int) or (hasattr(type(value), "__index__") and not hasattr(value, "_meta"))


def _integer(value: Any) -> int:
    number = int(value) if isinstance(value, int) else value.__index__()
    if not _INT_MIN <= number <= _INT_MAX:
        raise ArgumentError(f"the integer {number} does not fit into 64 bits")
    return int(number)


def _accept_scalar(value: Any, _: IsTensor) -> Accepted:
    if isinstance(value, bool):
        return True, bool(value)
    if isinstance(value, float):
        return True, float(value)
    if isinstance(value, complex):
        return True, complex(value)
    if _is_int(value):
        return True, _integer(value)
    numpy_scalar = (
        getattr(value, "item", None) if not hasattr(value, "_meta") and not getattr(value, "ndim", 1) else None
    )
    return _accept_scalar(numpy_scalar(), _) if numpy_scalar else _REFUSED


def _accept_tensor(value: Any, is_tensor: IsTensor) -> Accepted:
    return (True, value) if is_tensor(value) else _REFUSED


def _accept_tensor_or_scalar(value: Any, is_tensor: IsTensor) -> Accepted:
    return (True, value) if is_tensor(value) else _accept_scalar(value, is_tensor)


def _accept_tensors(value: Any, is_tensor: IsTensor) -> Accepted:
    if isinstance(value, (tuple, list)) and all(map(is_tensor, value)):
        return True, tuple(value)
    return _REFUSED


def _accept_optional_tensors(value: Any, is_tensor: IsTensor) -> Accepted:
    if isinstance(value, (tuple, list)) and all(v is None or is_tensor(v) for v in value):
        return True, tuple(value)
    return _REFUSED


def _accept_int(value: Any, _: IsTensor) -> Accepted:
    return (True, _integer(value)) if _is_int(value) and not isinstance(value, bool) else _REFUSED


def _accept_float(value: Any, _: IsTensor) -> Accepted:
    if isinstance(value, (int, float)):
        return True, float(value)
    accepted, number = _accept_scalar(value, _)
    return (True, float(number)) if accepted and not isinstance(number, complex) else _REFUSED


def _accept_bool(value: Any, _: IsTensor) -> Accepted:
    return (True, value) if isinstance(value, bool) else (True, bool(value)) if isinstance(value, int) else _REFUSED


def _accept_size(value: Any, _: IsTensor) -> Accepted:
    if _is_int(value):
        return True, (_integer(value),)
    if isinstance(value, (tuple, list)):
        if len(value) == 1 and isinstance(value[0], (tuple, list)):
            return _accept_size(value[0], _)
        if all(map(_is_int, value)):
            return True, tuple(map(_integer, value))
    return _REFUSED


def _accept_optional_sizes(value: Any, _: IsTensor) -> Accepted:
    accepted, size = _accept_size(value, _)
    if accepted:
        return True, size
    listed = (None,) if value is None else value
    if isinstance(listed, (tuple, list)) and all(v is None or _is_int(v) for v in listed):
        return True, tuple(None if v is None else _integer(v) for v in listed)
    return _REFUSED


def _accept_int_or_size(value: Any, _: IsTensor) -> Accepted:
    if isinstance(value, bool):
        return _REFUSED
    return (True, _integer(value)) if _is_int(value) else _accept_size(value, _)


def _accept_scalars(value: Any, is_tensor: IsTensor) -> Accepted:
    if isinstance(value, (tuple, list)):
        pairs = [_accept_scalar(v, is_tensor) for v in value]
        if all(ok for ok, _ in pairs):
            return True, tuple(v for _, v in pairs)
    return _REFUSED


def _instance(kind: type) -> Callable[[Any, IsTensor], Accepted]:
    return lambda value, _: (True, value) if isinstance(value, kind) else _REFUSED


def _accept_dtype(value: Any, _: IsTensor) -> Accepted:
    dtype = as_dtype(value)
    return _REFUSED if dtype is None else (True, dtype)


def _accept_device(value: Any, _: IsTensor) -> Accepted:
    if isinstance(value, int) and not isinstance(value, bool):
        return True, Device("cuda", value)
    return (True, Device(value)) if isinstance(value, (str, Device)) else _REFUSED


def _decode_device(value: Any) -> Device:
    """Decode the name of a device that a server may have."""
    device = Device(_typed(str)(value))
    if device.type in ("cpu", "cuda", "meta"):
        return device.on_server
    raise ProtocolError(f"expected a device of a server, not {value!r}")


def encode_scalar(value: Any) -> Any:
    """Encode a number for MessagePack; a complex number becomes the list of its two parts."""
    return [value.real, value.imag] if isinstance(value, complex) else value


def decode_scalar(value: Any) -> Any:
    """Decode what ``encode_scalar`` made; ``ProtocolError`` for anything but a number."""
    if isinstance(value, list) and len(value) == 2:
        return complex(*value)
    if isinstance(value, (bool, int, float)):
        return value
    raise ProtocolError(f"expected a number, not {type(value).__name__}")


def _decode_scalars(values: Any) -> tuple[Any, ...]:
    return tuple(map(decode_scalar, values))


def _decode_size(values: Any) -> tuple[int, ...]:
    if isinstance(values, list):
        return tuple(map(_decode_int, values))
    raise ProtocolError(f"expected a list of integers, not {type(values).__name__}")


def _decode_optional_sizes(values: Any) -> tuple[int | None, ...]:
    if isinstance(values, list):
        return tuple(None if value is None else _decode_int(value) for value in values)
    raise ProtocolError(f"expected a list of integers, not {type(values).__name__}")


def _decode_int_or_size(values: Any) -> Any:
    return _decode_int(values) if type(values) is int else _decode_size(values)


def _decode_int(value: Any) -> int:
    if type(value) is int and _INT_MIN <= value < 2**63:
        return value
    raise ProtocolError(f"expected an integer of 64 bits, not {value!r:.40}")


def _typed(kind: type | tuple[type, ...]) -> Callable[[Any], Any]:
    def decode(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        raise ProtocolError(f"expected {kind}, not {type(value).__name__}")

    return decode


def _optional(kind: Kind) -> Kind:
    accept, encode, decode = kind.accept, kind.encode, kind.decode
    return Kind(
        f"{kind.name}?",
        f"{kind.described} or None",
        lambda value, is_tensor: (True, None) if value is None else accept(value, is_tensor),
        holds_tensors=kind.holds_tensors,
        encode=(lambda value: None if value is None else encode(value)) if encode else None,
        decode=(lambda value: None if value is None else decode(value)) if decode else None,
    )


_BASIC = (
    Kind("tensor", "a tensor", _accept_tensor, holds_tensors=True),
    Kind("tensor|scalar", "a tensor or a number", _accept_tensor_or_scalar, holds_tensors=True),
    Kind("tensors", "a list of tensors", _accept_tensors, holds_tensors=True),
    Kind("tensors?", "a list of tensors and None", _accept_optional_tensors, holds_tensors=True),
    Kind("scalar", "a number", _accept_scalar, encode=encode_scalar, decode=decode_scalar),
    Kind("int", "an integer", _accept_int, decode=_decode_int),
    Kind("float", "a real number", _accept_float, decode=_typed((int, float))),
    Kind("bool", "a bool", _accept_bool, decode=_typed(bool)),
    Kind("str", "a string", _instance(str), decode=_typed(str)),
    Kind("size", "an integer or a list of integers", _accept_size, encode=list, decode=_decode_size),
    Kind("sizes?", "an integer or a list of integers and None", _accept_optional_sizes, encode=list,
         decode=_decode_optional_sizes),
    Kind("int|size", "an integer or a list of integers", _accept_int_or_size,
         encode=lambda v: v if isinstance(v, int) else list(v), decode=_decode_int_or_size),
    Kind("scalars", "a list of numbers", _accept_scalars,
         encode=lambda vs: [encode_scalar(v) for v in vs], decode=_decode_scalars),
    Kind("dtype", "a dtype", _accept_dtype, encode=lambda d: d.code, decode=of_code),
    Kind("device", "a device", _accept_device, encode=str, decode=_decode_device),
)  # fmt: skip
KINDS: dict[str, Kind] = {kind.name: kind for kind in _BASIC}
_OPTIONAL_OF = {name: _optional(kind) for name, kind in KINDS.items()}

# Annotations as they are written in the contracts, which all have ``from __future__ import annotations``.
_BY_ANNOTATION = {
    "Meta": "tensor", "Meta | Scalar": "tensor|scalar", "list[Meta]": "tensors", "list[Meta | None]": "tensors?",
    "Scalar": "scalar", "int": "int", "float": "float", "bool": "bool", "str": "str", "Size": "size",
    "list[int | None]": "sizes?", "int | Size": "int|size", "list[Scalar]": "scalars", "DType": "dtype",
    "Device": "device",
}  # fmt: skip


def kind_of(annotation: str) -> Kind:
    """Return the kind that a contract's annotation names."""
    plain = annotation.removesuffix(" | None")
    name = _BY_ANNOTATION.get(plain)
    if name is None:
        raise TypeError(f"no parameter kind for the annotation {annotation!r}")
    return _OPTIONAL_OF[name] if plain != annotation else KINDS[name]


def read_params(rule: Callable[..., Any]) -> tuple[Param, ...]:
    """Read the parameters of a contract from its signature; ``*size: int`` takes a size or separate integers.

    They are read from the function's code: a thousand ``inspect.Signature`` would be a tenth of the time of an import.
    """
    written = cast(FunctionType, inspect.unwrap(rule))
    code, defaults, by_name = written.__code__, written.__defaults__ or (), written.__kwdefaults__ or {}
    names, last = code.co_varnames, code.co_argcount
    first_default = last - len(defaults)
    params = []
    for position, name in enumerate(names[:last]):
        default = defaults[position - first_default] if position >= first_default else inspect.Parameter.empty
        params.append(Param(name, kind_of(str(written.__annotations__.get(name))), default))
    end = last + code.co_kwonlyargcount
    if code.co_flags & inspect.CO_VARARGS:
        params.append(Param(names[end], KINDS["size"], varargs=True))
    for name in names[last:end]:
        default = by_name.get(name, inspect.Parameter.empty)
        params.append(Param(name, kind_of(str(written.__annotations__.get(name))), default, keyword_only=True))
    return tuple(params)


def is_meta(value: Any) -> bool:
    """Tell whether a value is a tensor to a shape rule: there, tensors are metas."""
    return isinstance(value, Meta)
