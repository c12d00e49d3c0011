"""Dispatch keys, from the lowest to the highest, and sets of them: what a kernel is registered for.

telegrad selects among those of the CPU, CUDA and meta devices; kernels for other devices can be registered, and are
never selected.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final

from telegrad_protocol.errors import OperatorError

_BACKENDS: Final = "CPU CUDA Meta XLA MPS XPU HPU MTIA PrivateUse1"
_ORDER: Final = (
    f"Undefined {_BACKENDS} SparseCPU SparseCUDA SparseMeta SparseCsrCPU SparseCsrCUDA SparseCsrMeta QuantizedCPU "
    "QuantizedCUDA MkldnnCPU NestedTensorCPU NestedTensorCUDA BackendSelect Python FuncTorchDynamicLayerBackMode "
    "Functionalize Named Conjugate Negative ZeroTensor ADInplaceOrView AutogradOther "
    f"{' '.join(f'Autograd{name}' for name in _BACKENDS.split())} AutogradNestedTensor Tracer "
    "AutocastCPU AutocastCUDA AutocastMPS AutocastXPU AutocastHPU AutocastXLA AutocastMTIA AutocastPrivateUse1 "
    "FuncTorchBatched BatchedNestedTensor FuncTorchVmapMode Batched VmapMode FuncTorchGradWrapper DeferredInit "
    "PythonTLSSnapshot FuncTorchDynamicLayerFrontMode PreDispatch PythonDispatcher "
    "Autograd CompositeImplicitAutograd FuncTorchBatchedDecomposition CompositeImplicitAutogradNestedTensor "
    "CompositeExplicitAutograd CompositeExplicitAutogradNonFunctional"
)
_enumeration: Final[Any] = IntEnum
DispatchKey: Final[Any] = _enumeration("DispatchKey", {name: place for place, name in enumerate(_ORDER.split())})
"""The keys; the aliases, which stand for several keys, come last."""
_BY_NAME: Final[dict[str, Any]] = DispatchKey.__members__


def bit(name: str) -> int:
    """Return the set, as an integer, that has the key of this name only."""
    return 1 << int(_BY_NAME[name])


def bits(names: str) -> int:
    """Return the set, as an integer, of the keys of these names."""
    result = 0
    for name in names.split():
        result |= bit(name)
    return result


AUTOGRAD: Final = bits("AutogradOther AutogradNestedTensor " + " ".join(f"Autograd{n}" for n in _BACKENDS.split()))
INPLACE_OR_VIEW: Final = bit("ADInplaceOrView")
BATCHED: Final = bit("FuncTorchBatched")
PYTHON: Final = bit("Python")
BACKENDS: Final = {"cpu": bits("CPU AutogradCPU"), "cuda": bits("CUDA AutogradCUDA"), "meta": bits("Meta AutogradMeta")}
"""The keys of the tensors on a device, by its type."""
SPARSE: Final = {
    f"{layout}_{device}": bits(f"{key}{suffix} Autograd{suffix}")
    for layout, key in (("coo", "Sparse"), ("compressed", "SparseCsr"))
    for device, suffix in (("cpu", "CPU"), ("cuda", "CUDA"), ("meta", "Meta"))
}
AUTOCAST: Final = {"cpu": bit("AutocastCPU"), "cuda": bit("AutocastCUDA")}
_DEVICES: Final = {name.lower(): name for name in _BACKENDS.split()} | {"privateuseone": "PrivateUse1"}


def parse_key(name: Any) -> Any:
    """Return the key of a name. Raises OperatorError for an unknown one."""
    if isinstance(name, DispatchKey):
        return name
    try:
        return _BY_NAME[name]
    except KeyError:
        raise OperatorError(f"could not parse dispatch key: {name}") from None


def is_key(name: str) -> bool:
    """Whether there is a key of this name."""
    return name in _BY_NAME


def key_of_device(device_type: str) -> str:
    """Return the name of the key of a type of device. Raises OperatorError for an unknown one."""
    try:
        return _DEVICES[device_type]
    except KeyError:
        raise OperatorError(
            f"Expected one of cpu, cuda, meta and other types of devices at start of device string: {device_type}"
        ) from None


class DispatchKeySet:
    """A set of keys, as a kernel gets it that asks for the keys of its call."""

    __slots__ = ("bits",)

    def __init__(self, keys: Any = 0) -> None:
        if isinstance(keys, (DispatchKey, str)):
            keys = 1 << parse_key(keys)
        self.bits: int = keys

    @staticmethod
    def from_raw_repr(raw: int) -> DispatchKeySet:
        return DispatchKeySet(raw)

    def raw_repr(self) -> int:
        return self.bits

    def has(self, key: Any) -> bool:
        """Whether a key is in it."""
        return bool(self.bits >> parse_key(key) & 1)

    def add(self, key: Any) -> DispatchKeySet:
        """Return the set with a key more."""
        return DispatchKeySet(self.bits | 1 << parse_key(key))

    def remove(self, key: Any) -> DispatchKeySet:
        """Return the set without a key."""
        return DispatchKeySet(self.bits & ~(1 << parse_key(key)))

    def highestPriorityTypeId(self) -> Any:
        """Return the key in it that is dispatched to first."""
        return DispatchKey(max(self.bits.bit_length() - 1, 0))

    def __contains__(self, key: Any) -> bool:
        return self.has(key)

    def __and__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self.bits & other.bits)

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self.bits | other.bits)

    def __sub__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self.bits & ~other.bits)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DispatchKeySet) and self.bits == other.bits

    def __hash__(self) -> int:
        return hash(self.bits)

    def __iter__(self) -> Iterator[Any]:
        return (key for key in DispatchKey if self.bits >> key & 1)

    def __repr__(self) -> str:
        return f"DispatchKeySet({', '.join([key.name for key in reversed([*self])])})"


def below(mask: int) -> DispatchKeySet:
    """Return all keys below the lowest of a set."""
    return DispatchKeySet((mask & -mask) - 1)


AFTER_AUTOGRAD: Final = below(INPLACE_OR_VIEW)
AFTER_INPLACE_OR_VIEW: Final = below(INPLACE_OR_VIEW)
