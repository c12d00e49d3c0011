"""Names of ``torch`` itself that are no part of its interface, and that packages use."""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import Any

from telegrad import ops as _ops
from telegrad._ops.functions import function as _function
from telegrad._programs.compiled_core import SCRIPT_TYPES as _SCRIPT_TYPES
from telegrad._programs.compiled_core import Type as Type
from telegrad._tensor.layouts import mkldnn as _mkldnn_layout
from telegrad.amp.autocast_mode import get_autocast_dtype as _get_autocast_dtype
from telegrad.amp.autocast_mode import is_autocast_enabled as _is_autocast_enabled
from telegrad.amp.autocast_mode import set_autocast_dtype as _set_autocast_dtype
from telegrad.amp.autocast_mode import set_autocast_enabled as _set_autocast_enabled
from telegrad.futures import Future as Future
from telegrad.jit import ScriptModule as ScriptModule
from telegrad.random import default_generator as default_generator
from telegrad.storage import STORAGE_CLASSES as _STORAGE_CLASSES
from telegrad.storage import UntypedStorage as _UntypedStorage
from telegrad_protocol.dtypes import DType as _DType
from telegrad_protocol.memory_format import contiguous_format as _contiguous_format

from . import checks as _checks
from . import core_functions as _core_functions
from . import foreach, removed, symbols
from .archives import PyTorchFileReader as PyTorchFileReader

_OPERATORS_ALONE = ("_foreach_copy", "_foreach_zero")
"""Operators that PyTorch has no function for, whose absence its own tables of tests ask about."""
_HAD = {"has_cuda": "is_built", "has_cudnn": "is_available", "has_mkldnn": "is_available", "has_mps": "is_built"}
"""Older flags, by the functions of the same backends that programs ask today."""
StorageBase = _UntypedStorage
_mkldnn = _mkldnn_layout
_assert = _checks._assert
_check = _checks._check
_check_index = _checks._check_index
_check_is_size = _checks._check_is_size
_check_not_implemented = _checks._check_not_implemented
_check_tensor_all = _checks._check_tensor_all
_check_tensor_all_with = _checks._check_tensor_all_with
_check_type = _checks._check_type
_check_value = _checks._check_value
_check_with = _checks._check_with
dsmm = _function("mm")
legacy_contiguous_format = _contiguous_format
has_lapack = has_mkl = has_openmp = has_spectral = True  # older programs ask before they factorise or transform
globals().update({name: value for name, value in vars(symbols).items() if name.startswith("sym_")})
globals().update(foreach.functions())
globals().update(removed.functions())
globals().update(_SCRIPT_TYPES)
globals().update(_STORAGE_CLASSES)
_storage_classes = {*_STORAGE_CLASSES.values()}


def compiled_with_cxx11_abi() -> bool:
    """Whether extensions are compiled with today's names of C++'s standard library: they are, on the server."""
    return True


def get_autocast_cpu_dtype() -> _DType:
    """Return the type that a block of autocast computes in on the CPU."""
    return _get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> _DType:
    """Return the type that a block of autocast computes in on GPUs."""
    return _get_autocast_dtype("cuda")


def is_autocast_cpu_enabled() -> bool:
    """Whether a block of autocast for the CPU is running."""
    return _is_autocast_enabled("cpu")


def set_autocast_cpu_dtype(dtype: _DType) -> None:
    """Set the type that blocks of autocast compute in on the CPU where they name none."""
    _set_autocast_dtype("cpu", dtype)


def set_autocast_gpu_dtype(dtype: _DType) -> None:
    """Set the type that blocks of autocast compute in on GPUs where they name none."""
    _set_autocast_dtype("cuda", dtype)


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """Set whether operations on the CPU are computed as in a block of autocast."""
    _set_autocast_enabled("cpu", enabled)


def __getattr__(name: str) -> Any:
    """Return a function of networks, an operator of ATen by its private name, such as ``_log_softmax``, or a flag."""
    if name in _core_functions.OF_NETWORKS:
        return getattr(_core_functions, name)
    if name in _HAD:
        return bool(getattr(_import_module(f"telegrad.backends.{name[4:]}"), _HAD[name])())
    if name.startswith("__") or not name.startswith("_") or name in _OPERATORS_ALONE:
        raise AttributeError(name)
    return getattr(_ops.aten, name)
