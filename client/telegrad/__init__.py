"""telegrad: tensors that live on a server, in code that reads like eager PyTorch.

``connect`` opens a session; tensors, functions, ``nn``, ``optim``, ``autograd`` and ``cuda`` carry PyTorch's names.
"""

# ruff: noqa: F401, F403 - what is imported here is what users find
from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from telegrad_protocol.dtypes import (
    DType,
    bfloat16,
    bool_,
    can_cast,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    get_default_dtype,
    int8,
    int16,
    int32,
    int64,
    promote_types,
    uint8,
)
from telegrad_protocol.errors import OutOfMemoryError, TelegradError
from telegrad_protocol.memory_format import (
    MemoryFormat,
    channels_last,
    channels_last_3d,
    contiguous_format,
    preserve_format,
)
from telegrad_protocol.meta import Device

from . import _attach, amp, autograd, backends, cuda, errors, nn, optim, random, return_types
from ._functions.composites import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    block_diag,
    broadcast_shapes,
    broadcast_tensors,
    cartesian_prod,
    column_stack,
    combinations,
    isin,
    meshgrid,
    tril_indices,
    triu_indices,
    unique,
)
from ._functions.creation import (
    allclose,
    as_tensor,
    asarray,
    equal,
    from_numpy,
    get_default_device,
    is_tensor,
    nonzero,
    numel,
    set_default_device,
    tensor,
    where,
)
from ._functions.einsum import einsum, tensordot
from ._functions.files import load, save
from ._functions.memory_formats import clone
from ._ops import signatures as _signatures
from ._ops.functions import populate as _populate
from ._session.connect import Connection, connect, disconnect
from ._session.grad_mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from ._session.settings import set_default_dtype
from ._session.wire_stats import WireStats, wire_stats
from ._tensor.formatting import printoptions, set_printoptions
from ._tensor.size import Size
from ._tensor.tensor import Tensor
from .amp.autocast_mode import (
    autocast,
    autocast_decrement_nesting,
    autocast_increment_nesting,
    clear_autocast_cache,
    get_autocast_dtype,
    is_autocast_cache_enabled,
    is_autocast_enabled,
    set_autocast_cache_enabled,
    set_autocast_dtype,
    set_autocast_enabled,
)
from .backends.cuda import (
    are_deterministic_algorithms_enabled,
    get_float32_matmul_precision,
    set_float32_matmul_precision,
    use_deterministic_algorithms,
)
from .random import get_rng_state, initial_seed, manual_seed, seed, set_rng_state

if TYPE_CHECKING:
    from ._attached import *

__version__ = "0.1.0"

bool = bool_
half, float, double, short, int, long = float16, float32, float64, int16, int32, int64
cfloat, cdouble = complex64, complex128
device, dtype, memory_format = Device, DType, MemoryFormat
pi, e, inf = 3.141592653589793, 2.718281828459045, 1e400
nan = inf - inf
newaxis = None


def finfo(dtype: DType | None = None) -> Any:
    """Limits of a floating-point type."""
    from ._tensor.dtype_limits import float_limits

    return float_limits(dtype or get_default_dtype())


def iinfo(dtype: DType) -> Any:
    """Limits of an integer type."""
    from ._tensor.dtype_limits import integer_limits

    return integer_limits(dtype)


def result_type(input: Any, other: Any) -> DType:
    """The type that an operation on the two gives."""
    from telegrad_protocol.dtypes import result_type as of_operands

    return of_operands([input, other])


def is_floating_point(input: Tensor) -> Any:
    """Whether elements are real floating-point numbers."""
    return input.is_floating_point()


def is_complex(input: Tensor) -> Any:
    """Whether elements are complex."""
    return input.is_complex()


_populate(globals(), "")
for _module in (errors, sys.modules[__name__], nn.functional, cuda):
    _signatures.publish(_module)
_signatures.publish_methods(Tensor)

__all__ = [
    name
    for name in globals()
    if not name.startswith("_") and name not in ("annotations", "sys", "Any", "TYPE_CHECKING")
]
