"""Has PyTorch's own functions call telegrad's: a tensor that stands for one of telegrad's wherever PyTorch takes it.

The operator database calls many operators through small functions of its own. Given these stand-ins, PyTorch hands
every call of its functions and methods to ``__torch_function__``, which calls what telegrad has under the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np
import torch
from torch.overrides import resolve_name

import telegrad

_TYPES = {
    getattr(torch, name): getattr(telegrad, name)
    for name in (
        "float32", "float64", "float16", "bfloat16", "complex64", "complex128", "int8", "int16", "int32", "int64",
        "uint8", "uint16", "uint32", "uint64", "bool", "complex32",
    )
    if hasattr(telegrad, name)
}  # fmt: skip


_WIDER = {torch.bfloat16: torch.float32, torch.complex32: torch.complex64}
"""Types that NumPy lacks, with wider ones that it has."""
_SHARED: dict[int, Any] | None = None
"""Tensors of whole storages by the storages' addresses, while ``sharing_memory`` is in force."""
_OBJECTS: dict[int, Any] = {}
"""Tensors by the identities of those that they stand for, while ``sharing_memory`` is in force."""


@contextmanager
def sharing_memory() -> Iterator[None]:
    """Let tensors of one storage of PyTorch's become tensors that share memory."""
    global _SHARED
    _SHARED = {}
    try:
        yield
    finally:
        _SHARED = None
        _OBJECTS.clear()


_INSIDE = {
    "sparse_sampled_addmm": "sparse.sampled_addmm", "_sparse_mm": "sparse.mm", "_sparse_addmm": "sparse.addmm",
    "_sparse_sum": "sparse.sum", "_sparse_softmax": "sparse.softmax", "_sparse_log_softmax": "sparse.log_softmax",
    "_spdiags": "sparse.spdiags",
}  # fmt: skip
"""What PyTorch calls functions of ``torch.sparse`` inside, and how users call them."""


class MissingName(Exception):
    """Telegrad has nothing under a name of PyTorch's."""


class Served(torch.Tensor):
    """Stands for a tensor of telegrad's. To PyTorch it is a subclass of its tensor that decides what functions do."""

    tensor: Any

    @staticmethod
    def __new__(cls, tensor: Any) -> Served:
        with torch._C.DisableTorchFunctionSubclass():
            made: Served = torch.Tensor._make_subclass(cls, torch.empty(0, device="meta"))
        made.tensor = tensor
        return made

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = resolve_name(function) or getattr(function, "__qualname__", repr(function))
        if name.endswith(".__get__"):
            return in_pytorchs_words(getattr(unwrapped(args[0]), name.split(".")[-2]))
        return wrapped(named(name)(*unwrapped(args), **unwrapped(kwargs or {})))


def named(name: str) -> Callable[..., Any]:
    """Return what telegrad has under a dotted name, such as ``torch.Tensor.add`` or ``linalg.det``."""
    value: Any = telegrad
    below = name.removeprefix("torch.").removeprefix("functional.").removeprefix("_VariableFunctionsClass.")
    below = _INSIDE.get(below.removeprefix("_sparse."), below)
    below = f"ops.{below}" if below.startswith("aten.") else below
    for part in below.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            try:
                value = import_module(f"{value.__name__}.{part}")
            except (ImportError, AttributeError):
                if "." not in below and hasattr(telegrad.Tensor, below):
                    return getattr(telegrad.Tensor, below)  # type: ignore[no-any-return]
                raise MissingName(below) from None
    return value  # type: ignore[no-any-return]


def wrapped(value: Any) -> Any:
    """Put stand-ins in place of telegrad's tensors, through containers."""
    return _mapped(value, lambda leaf: Served(leaf) if isinstance(leaf, telegrad.Tensor) else leaf)


def in_pytorchs_words(value: Any) -> Any:
    """Return what a property of a tensor is, as PyTorch has it."""
    if isinstance(value, type(telegrad.float32)):
        return next(theirs for theirs, ours in _TYPES.items() if ours is value)
    if isinstance(value, telegrad.layout):
        return getattr(torch, value.name)
    if isinstance(value, telegrad.device):
        return torch.device(str(value))
    return wrapped(value)


def unwrapped(value: Any) -> Any:
    """Put telegrad's objects in place of PyTorch's."""
    return _mapped(value, _ours)


def _ours(leaf: Any) -> Any:
    if isinstance(leaf, Served):
        return leaf.tensor
    if isinstance(leaf, torch.Tensor):  # one that is no stand-in
        return _remembered(leaf)
    if isinstance(leaf, torch.dtype):
        return _TYPES[leaf]
    if isinstance(leaf, torch.device):
        return telegrad.device(str(leaf))
    if isinstance(leaf, FunctionType | BuiltinFunctionType | torch.nn.Module):  # a function, such as a distance
        return lambda *args, **kwargs: unwrapped(leaf(*wrapped(args), **wrapped(kwargs)))
    if isinstance(leaf, torch.memory_format | torch.layout):
        return getattr(telegrad, str(leaf).removeprefix("torch."))
    return leaf


def _remembered(leaf: torch.Tensor) -> Any:
    """A tensor of telegrad's for one of PyTorch's: the same one again while ``sharing_memory`` is in force."""
    if _SHARED is None:
        return to_telegrad(leaf)
    made = _OBJECTS.get(id(leaf))
    if made is None:
        made = _OBJECTS[id(leaf)] = to_telegrad(leaf)
    return made


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[_mapped(item, change) for item in value])
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, tuple | list):
        return type(value)([_mapped(item, change) for item in value])
    if isinstance(value, dict):
        return {key: _mapped(item, change) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*[_mapped(item, change) for item in (value.start, value.stop, value.step)])
    return change(value)


def to_telegrad(tensor: torch.Tensor, device: str | None = None) -> Any:
    """Return a telegrad tensor of the same elements, layout and ``requires_grad``."""
    if tensor.layout is not torch.strided:
        return _sparse_to_telegrad(tensor, device)
    plain = tensor.detach().resolve_conj().resolve_neg()
    if tensor.device.type == "meta":
        return telegrad.empty_strided(plain.shape, plain.stride(), dtype=_TYPES[tensor.dtype], device="meta")
    plain = plain.cpu()
    address = plain.untyped_storage().data_ptr()
    if _SHARED is not None and address in _SHARED and _SHARED[address].dtype is _TYPES[tensor.dtype]:
        made = telegrad.as_strided(_SHARED[address], tuple(plain.shape), plain.stride(), plain.storage_offset())
        return made.requires_grad_() if tensor.requires_grad else made
    length = plain.untyped_storage().nbytes() // plain.itemsize
    flat = torch.as_strided(plain, (length,), (1,), 0)
    wide = _WIDER.get(flat.dtype)
    made = telegrad.from_numpy(_numpy(flat if wide is None else flat.to(wide)))
    made = made if wide is None else made.to(_TYPES[tensor.dtype])
    made = made.to(device or telegrad.get_default_device())
    if _SHARED is not None:
        _SHARED[address] = made
    made = telegrad.as_strided(made, tuple(plain.shape), plain.stride(), plain.storage_offset())
    if _SHARED is not None:
        return made.requires_grad_() if tensor.requires_grad else made
    return made.detach().requires_grad_() if tensor.requires_grad else made


def _sparse_to_telegrad(tensor: torch.Tensor, device: str | None) -> Any:
    """Return a sparse tensor made of the same parts."""
    plain = tensor.detach()
    if tensor.layout is torch.sparse_coo:
        parts = [to_telegrad(part, device) for part in (plain._indices(), plain._values())]
        made = telegrad.sparse_coo_tensor(*parts, tuple(plain.shape), is_coalesced=plain.is_coalesced())
    else:
        by_rows = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
        names = ("crow_indices", "col_indices") if by_rows else ("ccol_indices", "row_indices")
        parts = [to_telegrad(part, device) for part in (*[getattr(plain, name)() for name in names], plain.values())]
        made = telegrad.sparse_compressed_tensor(*parts, tuple(plain.shape), layout=_ours(tensor.layout))
    return made.requires_grad_() if tensor.requires_grad else made


def _numpy(flat: torch.Tensor) -> np.ndarray[Any, Any]:
    return np.array(flat.numpy(), copy=True)


def to_torch(tensor: Any) -> torch.Tensor:
    """Return the elements of a telegrad tensor, on the host."""
    dtype = next(theirs for theirs, ours in _TYPES.items() if ours is tensor.dtype)
    host = tensor.detach().to("cpu").to_dense()
    if dtype in _WIDER:
        return torch.from_numpy(np.array(host.to(_TYPES[_WIDER[dtype]]).numpy())).to(dtype)
    return torch.from_numpy(np.array(host.numpy()))
