"""The few names of PyTorch's compiled core that published packages use, with what they mean when nothing is traced."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from telegrad._ops.batching import batching as _batching
from telegrad._ops.duals import duals as _duals
from telegrad._ops.operand_classes import overrides as _overrides
from telegrad._ops.overriding import all_disabled as _all_disabled
from telegrad._ops.overriding import disabled as _disabled
from telegrad._ops.overriding import disabled_torch_function as _disabled_torch_function
from telegrad._session.grad_mode import _set_grad_enabled as _set_grad_enabled
from telegrad._tensor.generator import Generator as Generator
from telegrad._tensor.size import Size as Size
from telegrad._tensor.tensor import Tensor as _Tensor
from telegrad.autograd.function import Function as _Function
from telegrad.storage import storage_of as _storage_of
from telegrad_protocol.dtypes import DType as dtype
from telegrad_protocol.errors import AcceleratorError as _AcceleratorError
from telegrad_protocol.errors import LinearAlgebraError as _LinearAlgebraError
from telegrad_protocol.errors import OutOfMemoryError as _OutOfMemory
from telegrad_protocol.meta import Device as device

__all__ = ["Generator", "Size", "device", "dtype"]

_FunctionBase = _Function
_LinAlgError = _LinearAlgebraError
OutOfMemoryError = _OutOfMemory
AcceleratorError = _AcceleratorError
_TensorMeta = type(_Tensor)
DisableTorchFunction, DisableTorchFunctionSubclass = _all_disabled, _disabled
_disabled_torch_function_impl = _disabled_torch_function
_has_cuda = _has_cudnn = _has_cusparselt = _has_eigen_sparse = _has_kleidiai = _has_magma = _has_mkldnn = False
_has_mkldnn_acl = _has_mps = _has_xpu = False  # what PyTorch's core was compiled with, which is not there


class _DisableTorchDispatch:
    """Lets neither modes nor classes answer operators, as long as the object is there."""

    def __init__(self) -> None:
        self._before, _overrides.ignores_dispatch = _overrides.ignores_dispatch, True

    def __del__(self) -> None:
        _overrides.ignores_dispatch = self._before

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        _overrides.ignores_dispatch = self._before


def _get_tracing_state() -> None:
    return None


def _log_api_usage_once(name: str) -> None:
    pass


def _is_tracing() -> bool:
    return False


def _is_torch_function_mode_enabled() -> bool:
    return bool(_overrides.modes)


def _is_torch_function_enabled() -> bool:
    return not _overrides.are_disabled


def _len_torch_function_stack() -> int:
    return len(_overrides.modes)


def _len_torch_dispatch_stack() -> int:
    return len(_overrides.dispatch_modes)


def _set_print_stack_traces_on_fatal_signal(wanted: bool) -> None:
    pass


def _is_alias_of(self: _Tensor, other: _Tensor) -> bool:
    """Tell whether tensors show the same memory. One round trip for each, unless both are known to be views of one."""
    if self is other or (self._aliases is not None and self._aliases is other._aliases):
        return True
    if self.is_meta or other.is_meta or not self.numel() or not other.numel():
        return False
    return _storage_of(self) == _storage_of(other)


def _are_functorch_transforms_active() -> bool:
    """Tell whether this thread is inside of a function of ``torch.func``, such as ``grad``, ``jvp`` or ``vmap``."""
    levels = [level for level in _duals.levels if level.is_transform]
    return bool(levels or _batching.levels or _batching.derivatives)


def _jit_set_profiling_mode(wanted: bool) -> bool:
    return False


_jit_set_profiling_executor = _jit_set_texpr_fuser_enabled = _jit_set_nvfuser_enabled = _jit_set_profiling_mode
_jit_override_can_fuse_on_cpu = _jit_override_can_fuse_on_gpu = _jit_set_profiling_mode


def _current_graph_task_id() -> int:
    """Return the number of the backward pass that this thread is in, such as in a hook, -1 outside of passes."""
    innermost = import_module("telegrad.autograd._client_pass").running.innermost
    return -1 if innermost is None else int(innermost._number)


def _get_cudnn_enabled() -> bool:
    return bool(import_module("telegrad.backends.cudnn").enabled)


def __getattr__(name: str) -> Any:
    """Return what is elsewhere too, or concerns operators and their dispatch: it is imported when first named."""
    if name.startswith("__"):
        raise AttributeError(name)
    if name in _ELSEWHERE:
        module, _, own = _ELSEWHERE[name].rpartition(".")
        return getattr(import_module(module), own) if module else import_module(own)
    return getattr(import_module("telegrad._library.compiled.core"), name)


_ELSEWHERE: Final = {
    "Event": "telegrad.Event", "Future": "telegrad.futures.Future", "JITException": "telegrad.jit.Error",
    "ScriptFunction": "telegrad.jit.ScriptFunction", "ScriptModule": "telegrad.jit.ScriptModule",
    "StorageBase": "telegrad.storage.UntypedStorage", "Stream": "telegrad.Stream", "TensorBase": "telegrad.Tensor",
    "_VariableFunctions": "telegrad", "_from_dlpack": "telegrad.utils.dlpack.from_dlpack",
    "_to_dlpack": "telegrad.utils.dlpack.to_dlpack", "default_generator": "telegrad.random.default_generator",
    "layout": "telegrad.layout", "memory_format": "telegrad.memory_format",
}  # fmt: skip
"""What has a public name, too, by its name in the core."""
_SCRIPT_OBJECTS: Final = (
    "Block CompilationUnit ErrorReport Graph Node ScriptClass ScriptMethod ScriptObject StaticModule TracingState Value"
)
globals().update(
    {
        name: type(name, (), {"__doc__": "What TorchScript makes, for ``isinstance``: there are no such objects."})
        for name in _SCRIPT_OBJECTS.split()
    }
)


class Type:
    """A type of TorchScript's, for ``isinstance`` and annotations: there are no such objects."""


_SCRIPT_TYPES: Final = (
    "AnyType AwaitType BoolType ClassType ComplexType DeviceObjType DictType EnumType FloatType FutureType IntType "
    "InterfaceType ListType NoneType NumberType OptionalType PyObjectType RRefType StreamObjType StringType "
    "SymBoolType SymIntType TensorType TupleType UnionType"
)
SCRIPT_TYPES: Final = {
    name: type(name, (Type,), {"__doc__": Type.__doc__, "__module__": __name__}) for name in _SCRIPT_TYPES.split()
}
"""The types that PyTorch's compiler of scripts knows, by their names in ``torch``."""
globals().update(SCRIPT_TYPES)
