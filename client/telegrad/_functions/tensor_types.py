"""The types of tensors that PyTorch had before dtypes, ``FloatTensor`` and its like, and the constructor of ``Tensor``.

A type is a dtype and a kind of device. It makes tensors, and tells with ``isinstance`` which are of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, Final

from telegrad._ops.functions import function
from telegrad._ops.overriding import SLOTS, disabled
from telegrad._session.devices import DeviceLike
from telegrad._session.settings import set_default_dtype
from telegrad._tensor.size import Size
from telegrad._tensor.tensor import Tensor
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, DTypeError
from telegrad_protocol.shown_name import shown_name

from .creation import set_default_device, tensor

__all__ = [
    "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "ComplexDoubleTensor",
    "ComplexFloatTensor", "DoubleTensor", "FloatTensor", "HalfTensor", "IntTensor", "LongTensor", "ShortTensor",
    "set_default_tensor_type",
]  # fmt: skip

_DTYPES: Final = {
    "Float": dtypes.float32, "Double": dtypes.float64, "Half": dtypes.float16, "BFloat16": dtypes.bfloat16,
    "Int": dtypes.int32, "Long": dtypes.int64, "Short": dtypes.int16, "Char": dtypes.int8, "Byte": dtypes.uint8,
    "Bool": dtypes.bool_, "ComplexFloat": dtypes.complex64, "ComplexDouble": dtypes.complex128,
    "UInt16": dtypes.uint16, "UInt32": dtypes.uint32, "UInt64": dtypes.uint64, "ComplexHalf": dtypes.complex32,
}  # fmt: skip


class TensorType(type):
    """The class of ``FloatTensor`` and its like."""

    dtype: DType
    device_type: str

    def __instancecheck__(cls, instance: object) -> bool:
        if not isinstance(instance, Tensor):
            return False
        return instance.dtype is cls.dtype and instance.device.type == cls.device_type

    def __call__(cls, *args: Any, device: DeviceLike = None) -> Tensor:
        """Return a tensor of this type: of sizes, with uninitialised elements, or of a sequence, array or tensor."""
        return made_of(cls.__name__, args, cls.dtype, cls.device_type if device is None else device)

    @property
    def full_name(cls) -> str:
        """The name that ``Tensor.type`` gives, such as ``telegrad.cuda.FloatTensor``."""
        return shown_name(f"{'cuda.' if cls.device_type == 'cuda' else ''}{cls.__name__}")

    def __repr__(cls) -> str:
        return f"<class {cls.full_name!r}>"


def _types(device_type: str) -> dict[str, TensorType]:
    return {
        f"{name}Tensor": TensorType(f"{name}Tensor", (), {"dtype": dtype, "device_type": device_type})
        for name, dtype in _DTYPES.items()
    }


TYPES: Final = {"cpu": _types("cpu"), "cuda": _types("cuda")}
"""The types by the kind of device and their names."""
_TYPE_OF: Final = {(kind, t.dtype): t for kind, types in TYPES.items() for t in types.values()}


def type_of(self: Tensor) -> TensorType:
    """Return the type that tells a tensor's element type and kind of device, such as ``torch.FloatTensor``."""
    return _TYPE_OF["cuda" if self.is_cuda else "cpu", self.dtype]


def named_type(name: str) -> TensorType:
    """Return the type with a name such as ``torch.cuda.FloatTensor``."""
    package, _, last = name.rpartition(".")
    named = TYPES["cuda" if package.endswith("cuda") else "cpu"].get(last)
    if named is None:
        raise ArgumentError(f"invalid type: {name!r}; expected the name of one such as {shown_name('FloatTensor')!r}")
    return named


def made_of(name: str, args: Sequence[Any], dtype: DType, device: DeviceLike) -> Tensor:
    """Return a tensor of what a constructor of tensors was given.

    ``args``: sizes, one ``Size``, one sequence or array with the elements, or one tensor of the type, whose memory
    and history the result shares. Uninitialised where only the shape is given.
    """
    if len(args) == 1 and not _is_size(args[0]):
        (given,) = args
        if isinstance(given, Size):
            return function("empty")(given, dtype=dtype, device=device)  # type: ignore[no-any-return]
        if hasattr(given, "shown_as"):
            return _shown_storage(name, given, dtype)
        if isinstance(given, Tensor):
            if given.dtype is not dtype:
                raise DTypeError(f"{name}: expected a tensor of {dtype}, got {given._meta}; use to({dtype})")
            return _aliased(given)
        if not hasattr(given, "__len__") and not hasattr(given, "__iter__"):
            raise ArgumentTypeError(f"{name}: expected sizes or data, not {type(given).__name__}")
        return tensor(given if hasattr(given, "__array__") else list(given), dtype=dtype, device=device)
    return function("empty")([index(size) for size in args] or [0], dtype=dtype, device=device)  # type: ignore[no-any-return]


def _shown_storage(name: str, storage: Any, dtype: DType) -> Tensor:
    """Return a tensor that shows the memory of a storage, whose elements have to be of its type."""
    if storage.dtype not in (dtype, dtypes.uint8):
        raise ArgumentError(
            f"{name}: expected a storage of {dtype} or an UntypedStorage, but got one of {storage.dtype}"
        )
    return storage.shown_as(dtype)  # type: ignore[no-any-return]


def _is_size(argument: Any) -> bool:
    return hasattr(argument, "__index__") and not getattr(argument, "ndim", 0)


def new(self: Tensor, *args: Any, device: DeviceLike = None, size: Sequence[int] | None = None) -> Tensor:
    """Return a tensor of this one's type: of sizes, with uninitialised elements, or of a sequence, array or tensor."""
    given = args if size is None else (Size(size),)
    return made_of("new", given, self.dtype, self.device if device is None else device)


def _be_made_of(self: Tensor, args: Sequence[Any], device: DeviceLike) -> None:
    """Let a handle be what the constructor of ``Tensor`` makes of other arguments; a tensor may have any type."""
    if len(args) == 1 and isinstance(args[0], Tensor):
        made = _aliased(args[0])
    else:
        made = made_of("Tensor", args, dtypes.get_default_dtype(), device)
    for name in SLOTS:
        setattr(self, name, getattr(made, name))
    made._id = 0


def _aliased(tensor: Tensor) -> Tensor:
    """Return a plain tensor that shows the same memory, through which gradients flow."""
    with disabled():
        return function("alias")(tensor)  # type: ignore[no-any-return]


def _new(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Return a new object; the elements too where ``__new__`` of a class of the program calls this, as in PyTorch."""
    made = object.__new__(cls)
    if cls.__new__ is not Tensor.__new__:
        Tensor.__init__(made, *args, **kwargs)
    return made


Tensor.__new__ = _new  # type: ignore[method-assign]


def set_default_tensor_type(t: TensorType | str, /) -> None:
    """Make tensors of a type such as ``FloatTensor`` where a program names neither dtype nor device."""
    wanted = named_type(t) if isinstance(t, str) else t
    if not isinstance(wanted, TensorType):
        raise ArgumentTypeError(f"set_default_tensor_type: expected a type such as FloatTensor, not {t!r}")
    set_default_dtype(wanted.dtype)
    set_default_device(wanted.device_type)


METHODS: dict[str, Any] = {"new": new, "_be_made_of": _be_made_of}

BFloat16Tensor = TYPES["cpu"]["BFloat16Tensor"]
BoolTensor = TYPES["cpu"]["BoolTensor"]
ByteTensor = TYPES["cpu"]["ByteTensor"]
CharTensor = TYPES["cpu"]["CharTensor"]
ComplexDoubleTensor = TYPES["cpu"]["ComplexDoubleTensor"]
ComplexFloatTensor = TYPES["cpu"]["ComplexFloatTensor"]
DoubleTensor = TYPES["cpu"]["DoubleTensor"]
FloatTensor = TYPES["cpu"]["FloatTensor"]
HalfTensor = TYPES["cpu"]["HalfTensor"]
IntTensor = TYPES["cpu"]["IntTensor"]
LongTensor = TYPES["cpu"]["LongTensor"]
ShortTensor = TYPES["cpu"]["ShortTensor"]
