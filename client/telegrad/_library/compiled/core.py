"""Names of PyTorch's compiled core that concern operators, for programs and packages that use them."""

from __future__ import annotations

from typing import Any, Final

from telegrad._tensor.tensor import Tensor

from .. import aten, dispatch, keys, registry, state
from ..keys import DispatchKey as DispatchKey
from ..keys import DispatchKeySet as DispatchKeySet
from ..overloads import OpOverload
from ..schemas import types as schema
from ..schemas.tags import Tag as Tag
from ..schemas.text import parse_schema as parse_schema
from ..schemas.types import Argument as Argument
from ..schemas.types import FunctionSchema as FunctionSchema

_AliasInfo = schema.AliasInfo
_AutoDispatchBelowAutograd = state.AutoDispatchBelowAutograd
_AutoDispatchBelowADInplaceOrView = state.AutoDispatchBelowADInplaceOrView
_ExcludeDispatchKeyGuard = state.ExcludeDispatchKeyGuard
_IncludeDispatchKeyGuard = state.IncludeDispatchKeyGuard
_after_autograd_keyset: Final = keys.AFTER_AUTOGRAD
_after_ADInplaceOrView_keyset: Final = keys.AFTER_INPLACE_OR_VIEW


def _dispatch_keys(tensor: Tensor) -> DispatchKeySet:
    """Return the keys that a tensor brings to a call."""
    return DispatchKeySet(dispatch.keys_of_tensor(tensor))


def _dispatch_key_for_device(device_type: str) -> str:
    return keys.key_of_device(device_type)


def _parse_dispatch_key(name: str) -> Any:
    return keys.parse_key(name) if keys.is_key(name) else None


def _dispatch_key_name(key: Any) -> str:
    return str(keys.parse_key(key).name)


def _dispatch_has_kernel_for_dispatch_key(name: str, key: Any) -> bool:
    overload = _known(name)
    return keys.parse_key(key) in overload._operator.kernels if overload else False


def _dispatch_has_kernel(name: str) -> bool:
    return _known(name) is not None


def _dispatch_has_computed_kernel_for_dispatch_key(name: str, key: Any) -> bool:
    overload = _known(name)
    return overload is not None and overload._operator.kernel_for(keys.parse_key(key)) is not None


def _dispatch_tls_is_dispatch_key_excluded(key: Any) -> bool:
    return bool(state.state.excluded >> keys.parse_key(key) & 1)


def _dispatch_tls_is_dispatch_key_included(key: Any) -> bool:
    return bool(state.state.included >> keys.parse_key(key) & 1)


def _dispatch_get_all_op_names() -> list[str]:
    """Return the full names of all operators that are defined, and of all overloads of ``aten``."""
    defined = [
        overload._name
        for packets in registry.PACKETS.values()
        for packet in packets.values()
        for overload in packet._by_name.values()
    ]
    return [*aten.full_names(), *defined]


def _jit_get_schemas_for_operator(name: str) -> list[FunctionSchema]:
    """Return the schemas of all overloads of an operator, such as ``aten::mul``."""
    packet = registry.packet_of(*registry.split(name))
    return [] if packet is None else [getattr(packet, overload)._schema for overload in packet.overloads()]


def _get_schema(name: str, overload_name: str) -> FunctionSchema:
    """Return the schema of an overload."""
    overload = registry.overload_of(f"{name}.{overload_name}" if overload_name else name)
    if overload is None:
        raise RuntimeError(f"Found no matching schema for {name}.{overload_name}")
    return overload._schema


def _known(name: str) -> OpOverload | None:
    return registry.overload_of(name)
