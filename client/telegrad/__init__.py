"""telegrad: tensors that live on a server, with PyTorch's names; ``connect`` opens a session."""

# ruff: noqa: F403, I001 - what is imported here, under its own name, is what users find
from __future__ import annotations

import sys
from builtins import complex as _complex
from typing import TYPE_CHECKING, Any

from telegrad import _garbage  # first, since it pauses the garbage collector while the others are imported
from telegrad._lazy import lazy
from telegrad_protocol.absent_dtypes import ABSENT as _ABSENT_DTYPES
from telegrad_protocol.dtypes import (
    DType as DType,
    bfloat16 as bfloat16,
    bool_ as bool_,
    can_cast as can_cast,
    complex32 as complex32,
    complex64 as complex64,
    complex128 as complex128,
    float16 as float16,
    float32 as float32,
    float64 as float64,
    get_default_dtype as get_default_dtype,
    int8 as int8,
    int16 as int16,
    int32 as int32,
    int64 as int64,
    promote_types as promote_types,
    uint8 as uint8,
    uint16 as uint16,
    uint32 as uint32,
    uint64 as uint64,
)
from telegrad_protocol.dtypes import result_type as _result_type
from telegrad_protocol.errors import (
    AcceleratorError as AcceleratorError,
    OutOfMemoryError as OutOfMemoryError,
    TelegradError as TelegradError,
)
from telegrad_protocol.memory_format import (
    MemoryFormat as MemoryFormat,
    channels_last as channels_last,
    channels_last_3d as channels_last_3d,
    contiguous_format as contiguous_format,
    preserve_format as preserve_format,
)
from telegrad_protocol.meta import Device as Device

from . import (
    _attach as _attach,
    amp as amp,
    autograd as autograd,
    backends as backends,
    cuda as cuda,
    errors as errors,
    random as random,
    return_types as return_types,
)
from ._functions.attachments import KeptTensors as KeptTensors, detach as detach, kept as kept
from ._functions.numeric.calculus import (
    cumulative_trapezoid as cumulative_trapezoid,
    gradient as gradient,
    trapezoid as trapezoid,
    trapz as trapz,
)
from ._functions.composites import (
    atleast_1d as atleast_1d,
    atleast_2d as atleast_2d,
    atleast_3d as atleast_3d,
    block_diag as block_diag,
    broadcast_shapes as broadcast_shapes,
    broadcast_tensors as broadcast_tensors,
    cartesian_prod as cartesian_prod,
    column_stack as column_stack,
    combinations as combinations,
    isin as isin,
    meshgrid as meshgrid,
    tril_indices as tril_indices,
    triu_indices as triu_indices,
)
from ._functions.creation import (
    allclose as allclose,
    as_tensor as as_tensor,
    asarray as asarray,
    equal as equal,
    from_numpy as from_numpy,
    get_default_device as get_default_device,
    is_tensor as is_tensor,
    nonzero as nonzero,
    set_default_device as set_default_device,
    tensor as tensor,
    where as where,
)
from ._functions.einsum import einsum as einsum, tensordot as tensordot
from ._functions.layouts import (
    ccol_indices_copy as ccol_indices_copy,
    col_indices_copy as col_indices_copy,
    crow_indices_copy as crow_indices_copy,
    hspmm as hspmm,
    indices_copy as indices_copy,
    row_indices_copy as row_indices_copy,
    smm as smm,
    spmm as spmm,
    sspaddmm as sspaddmm,
    values_copy as values_copy,
)
from ._functions.low_rank import (
    chain_matmul as chain_matmul,
    lobpcg as lobpcg,
    lu as lu,
    pca_lowrank as pca_lowrank,
    svd_lowrank as svd_lowrank,
)
from ._functions.memory.formats import clone as clone
from ._functions.numeric.distances import cdist as cdist, pdist as pdist, renorm as renorm
from ._functions.numeric.filling import (
    diagflat as diagflat,
    empty_permuted as empty_permuted,
    fill as fill,
    index_reduce as index_reduce,
    range as range,
)
from ._functions.numeric.uniques import unique as unique, unique_consecutive as unique_consecutive
from ._functions.numeric.numbers import (
    float_power as float_power,
    is_nonzero as is_nonzero,
    isreal as isreal,
    ldexp as ldexp,
    nonzero_static as nonzero_static,
    unravel_index as unravel_index,
)
from ._functions.process_settings import (
    from_file as from_file,
    frombuffer as frombuffer,
    get_num_interop_threads as get_num_interop_threads,
    get_num_threads as get_num_threads,
    set_flush_denormal as set_flush_denormal,
    set_num_interop_threads as set_num_interop_threads,
    set_num_threads as set_num_threads,
    typename as typename,
)
from ._functions.properties import (
    adjoint as adjoint,
    is_complex as is_complex,
    is_conj as is_conj,
    is_floating_point as is_floating_point,
    is_inference as is_inference,
    is_neg as is_neg,
    numel as numel,
    resolve_conj as resolve_conj,
    resolve_neg as resolve_neg,
)
from ._functions.tensor_types import *
from ._functions.numeric.splitting import dsplit as dsplit, hsplit as hsplit, vsplit as vsplit
from ._functions.numeric.statistics import (
    corrcoef as corrcoef,
    cov as cov,
    histc as histc,
    histogram as histogram,
    histogramdd as histogramdd,
)
from ._functions.numeric.view_copies import (
    alias_copy as alias_copy,
    as_strided_copy as as_strided_copy,
    detach_copy as detach_copy,
    diagonal_copy as diagonal_copy,
    expand_copy as expand_copy,
    narrow_copy as narrow_copy,
    permute_copy as permute_copy,
    select_copy as select_copy,
    slice_copy as slice_copy,
    split_copy as split_copy,
    split_with_sizes_copy as split_with_sizes_copy,
    squeeze_copy as squeeze_copy,
    t_copy as t_copy,
    transpose_copy as transpose_copy,
    unbind_copy as unbind_copy,
    unfold_copy as unfold_copy,
    unsqueeze_copy as unsqueeze_copy,
    view_as_complex_copy as view_as_complex_copy,
    view_as_real_copy as view_as_real_copy,
    view_copy as view_copy,
)
from ._ops import signatures as _signatures
from ._ops.functions import function as _function, names_in as _names_in
from ._session.connect import Connection as Connection, connect as connect, disconnect as disconnect
from ._session.ending import DetachedSession as DetachedSession
from ._session.grad_mode import (
    enable_grad as enable_grad,
    inference_mode as inference_mode,
    is_grad_enabled as is_grad_enabled,
    is_inference_mode_enabled as is_inference_mode_enabled,
    no_grad as no_grad,
    set_grad_enabled as set_grad_enabled,
)
from ._session.settings import set_default_dtype as set_default_dtype
from ._kernels import activation as _activation
from ._session import tracebacks as _tracebacks
from ._session.wire_stats import WireStats as WireStats, wire_stats as wire_stats
from ._tensor import dtype_limits as _dtype_limits
from ._tensor.formatting import printoptions as printoptions, set_printoptions as set_printoptions
from ._tensor.generator import Generator as Generator
from ._tensor.layouts import (
    Layout as Layout,
    jagged as jagged,
    sparse_bsc as sparse_bsc,
    sparse_bsr as sparse_bsr,
    sparse_coo as sparse_coo,
    sparse_csc as sparse_csc,
    sparse_csr as sparse_csr,
    strided as strided,
)
from ._tensor.size import Size as Size
from ._tensor.tensor import Tensor as Tensor
from .amp import GradScaler as GradScaler
from .amp.autocast_mode import (
    autocast as autocast,
    autocast_decrement_nesting as autocast_decrement_nesting,
    autocast_increment_nesting as autocast_increment_nesting,
    clear_autocast_cache as clear_autocast_cache,
    get_autocast_dtype as get_autocast_dtype,
    is_autocast_cache_enabled as is_autocast_cache_enabled,
    is_autocast_enabled as is_autocast_enabled,
    set_autocast_cache_enabled as set_autocast_cache_enabled,
    set_autocast_dtype as set_autocast_dtype,
    set_autocast_enabled as set_autocast_enabled,
)
from .backends.cuda import (
    are_deterministic_algorithms_enabled as are_deterministic_algorithms_enabled,
    get_deterministic_debug_mode as get_deterministic_debug_mode,
    get_float32_matmul_precision as get_float32_matmul_precision,
    is_deterministic_algorithms_warn_only_enabled as is_deterministic_algorithms_warn_only_enabled,
    set_deterministic_debug_mode as set_deterministic_debug_mode,
    set_float32_matmul_precision as set_float32_matmul_precision,
    use_deterministic_algorithms as use_deterministic_algorithms,
)
from .cuda import streams as _streams
from .random import (
    get_rng_state as get_rng_state,
    initial_seed as initial_seed,
    manual_seed as manual_seed,
    seed as seed,
    set_rng_state as set_rng_state,
    thread_safe_generator as thread_safe_generator,
)

if TYPE_CHECKING:
    from . import (
        accelerator as accelerator,
        compiler as compiler,
        distributed as distributed,
        distributions as distributions,
        fft as fft,
        func as func,
        jit as jit,
        linalg as linalg,
        masked as masked,
        multiprocessing as multiprocessing,
        nested as nested,
        nn as nn,
        ops as ops,
        optim as optim,
        overrides as overrides,
        profiler as profiler,
        quasirandom as quasirandom,
        serialization as serialization,
        signal as signal,
        sparse as sparse,
        special as special,
        testing as testing,
        utils as utils,
    )
    from ._library.compiled.core import Argument as Argument, DispatchKey as DispatchKey, Tag as Tag
    from ._library.compiled.core import DispatchKeySet as DispatchKeySet, FunctionSchema as FunctionSchema
    from ._functions.native import (
        native_batch_norm as native_batch_norm,
        native_group_norm as native_group_norm,
        native_layer_norm as native_layer_norm,
    )
    from ._functions.memory.dlpack import from_dlpack as from_dlpack, to_dlpack as to_dlpack
    from ._functions.numeric.segments import segment_reduce as segment_reduce
    from ._other_devices import cpu as cpu, get_device_module as get_device_module, mps as mps, mtia as mtia, xpu as xpu
    from ._programs.run import as_torch as as_torch
    from .compiler import compile as compile, cond as cond, while_loop as while_loop
    from .func import vmap as vmap
    from .nn.functional import (
        bilinear as bilinear,
        celu_ as celu_,
        channel_shuffle as channel_shuffle,
        conv_tbc as conv_tbc,
        cosine_similarity as cosine_similarity,
        native_channel_shuffle as native_channel_shuffle,
        pairwise_distance as pairwise_distance,
        pixel_shuffle as pixel_shuffle,
        pixel_unshuffle as pixel_unshuffle,
        rrelu_ as rrelu_,
        selu_ as selu_,
        threshold_ as threshold_,
    )
    from .nn._functional.resampling import (
        grid_sampler as grid_sampler,
        grid_sampler_2d as grid_sampler_2d,
        grid_sampler_3d as grid_sampler_3d,
    )
    from .serialization import load as load, save as save
    from .sparse import (
        sparse_bsc_tensor as sparse_bsc_tensor,
        sparse_bsr_tensor as sparse_bsr_tensor,
        sparse_compressed_tensor as sparse_compressed_tensor,
        sparse_coo_tensor as sparse_coo_tensor,
        sparse_csc_tensor as sparse_csc_tensor,
        sparse_csr_tensor as sparse_csr_tensor,
    )
    from ._attached import *

__version__ = "0.1.0"

bool = bool_
half, float, double, short, int, long = float16, float32, float64, int16, int32, int64
chalf, cfloat, cdouble = complex32, complex64, complex128
device, dtype, layout, memory_format = Device, DType, Layout, MemoryFormat
Event, Stream = _streams.AcceleratorEvent, _streams.Stream
pi, e, inf = 3.141592653589793, 2.718281828459045, 1e400
nan = inf - inf
newaxis = None


def finfo(dtype: DType | None = None) -> Any:
    """Limits of a floating-point type."""
    return _dtype_limits.float_limits(dtype or get_default_dtype())


def iinfo(dtype: DType) -> Any:
    """Limits of an integer type."""
    return _dtype_limits.integer_limits(dtype)


def result_type(input: Tensor | _complex, other: Tensor | _complex) -> DType:
    """The type that an operation on the two gives."""
    return _result_type([input, other])


_LAZY = {
    **dict.fromkeys(
        (
            "accelerator", "compiler", "distributed", "distributions", "export", "fft", "func", "futures",
            "fx", "hub", "jit", "library", "linalg", "masked", "monitor", "multiprocessing", "nested", "nn", "ops",
            "optim", "overrides", "profiler", "quasirandom", "serialization", "signal", "sparse", "special",
            "storage", "testing", "utils",
        ), "",
    ),
    "_functions.memory.dlpack": "from_dlpack to_dlpack",
    "_functions.native": "native_batch_norm native_group_norm native_layer_norm",
    "_functions.numeric.segments": "segment_reduce",
    "_library.compiled.core": "Argument DispatchKey DispatchKeySet FunctionSchema Tag",
    "_other_devices": "cpu get_device_module mps mtia xpu",
    "_programs.private.symbols": "SymBool SymFloat SymInt",
    "_programs.run": "as_torch",
    "autograd.anomaly_mode": "is_anomaly_check_nan_enabled is_anomaly_enabled",
    "compiler": "compile cond while_loop",
    "func": "vmap",
    "nn.functional": (
        "bilinear celu_ channel_shuffle conv_tbc cosine_similarity native_channel_shuffle "
        "pairwise_distance pixel_shuffle pixel_unshuffle rrelu_ selu_ threshold_"
    ),
    "nn._functional.resampling": "grid_sampler grid_sampler_2d grid_sampler_3d",
    "serialization": "load save",
    "storage": "TypedStorage UntypedStorage is_storage",
    "sparse": " ".join([f"sparse_{kind}_tensor" for kind in ("coo", "csr", "csc", "bsr", "bsc", "compressed")]),
}  # fmt: skip
"""Public modules that are imported when a program first names them, and the public names in such modules."""

globals().update(_ABSENT_DTYPES)

if not TYPE_CHECKING:  # type checkers know the names, and tell of unknown ones
    __getattr__, __dir__ = lazy(__name__, _LAZY, _names_in(""), _function, _signatures.publish_in)

_tracebacks.install()
_activation.watch()
for _module in (errors, sys.modules[__name__], autograd, cuda):
    _signatures.publish(_module)
_signatures.publish_methods(Tensor)

if not TYPE_CHECKING:  # type checkers read the imports, and stubs of what is attached
    __all__ = [
        name
        for name in globals()
        if not name.startswith("_") and name not in ("annotations", "lazy", "sys", "Any", "TYPE_CHECKING")
    ]
    __all__ += sorted({*__dir__()} - {*globals()})

_garbage.resume()
