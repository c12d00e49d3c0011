"""Loads and launches kernels of clients on a GPU, through the CUDA driver. Knows no sessions."""

from __future__ import annotations

import ctypes
import functools
from typing import Any, NoReturn

from cuda.bindings import driver

from server.engine.device.cupy_module import cp
from server.engine.device.current_device import current_device, device_count
from server.engine.user_kernels.interface import Compiled, Geometry, Launch, Limits, Sizes, Text
from telegrad_protocol.errors import ArgumentError, OutOfMemoryError
from telegrad_protocol.kernel_messages import COOPERATIVE, PROGRAMMATIC, TensorMap

from .user_text import compile_text

_ATTRIBUTES = {
    "max_threads_per_block": "CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK",
    "shared_size_bytes": "CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES",
    "const_size_bytes": "CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES",
    "local_size_bytes": "CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES",
    "num_regs": "CU_FUNC_ATTRIBUTE_NUM_REGS",
    "ptx_version": "CU_FUNC_ATTRIBUTE_PTX_VERSION",
    "binary_version": "CU_FUNC_ATTRIBUTE_BINARY_VERSION",
    "cache_mode_ca": "CU_FUNC_ATTRIBUTE_CACHE_MODE_CA",
    "max_dynamic_shared_size_bytes": "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES",
    "preferred_shared_memory_carveout": "CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT",
}
_SETTABLE = ("max_dynamic_shared_size_bytes", "preferred_shared_memory_carveout")
_PORTABLE_CLUSTER = 8
_MOST_PARAMETERS = 4096
_REFUSALS = frozenset(
    (
        driver.CUresult.CUDA_ERROR_INVALID_PTX, driver.CUresult.CUDA_ERROR_INVALID_IMAGE,
        driver.CUresult.CUDA_ERROR_NO_BINARY_FOR_GPU, driver.CUresult.CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
        driver.CUresult.CUDA_ERROR_INVALID_SOURCE, driver.CUresult.CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND,
        driver.CUresult.CUDA_ERROR_NOT_FOUND, driver.CUresult.CUDA_ERROR_INVALID_VALUE,
        driver.CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, driver.CUresult.CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
        driver.CUresult.CUDA_ERROR_INVALID_CLUSTER_SIZE,
    )
)  # fmt: skip
_LOG_BYTES = 1 << 14
_KEPT_MAPS = 1024
_MAP_BYTES = 128
_MOST_DIMENSIONS = 5


class CudaKernelDriver:
    """The kernels of clients on one GPU, which is the current one when it is used."""

    def __init__(self, device: int) -> None:
        self._index = device
        figures = cp.cuda.Device(device).attributes
        self._architecture = f"sm_{cp.cuda.Device(device).compute_capability}"
        self.limits = Limits(
            (figures["MaxGridDimX"], figures["MaxGridDimY"], figures["MaxGridDimZ"]),
            (figures["MaxBlockDimX"], figures["MaxBlockDimY"], figures["MaxBlockDimZ"]),
            figures["MaxThreadsPerBlock"],
            _figure(device, "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            16 if _figure(device, "CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH") else 0,
        )

    def compile(self, text: Text) -> Compiled:
        """Compile a text for this GPU."""
        return compile_text(text, self._architecture)

    def load(self, code: bytes) -> Any:
        """Load machine code, or PTX text that a zero byte ends."""
        module = cp.cuda.function.Module()
        try:
            module.load(code)
        except cp.cuda.driver.CUDADriverError as error:
            _refuse(error, f"load module: the driver refuses the code{_log_of(code)}")
        return module

    def unload(self, module: Any) -> None:
        """Unload a module: CuPy does it with the last reference, which is the caller's."""

    def function(self, module: Any, name: str) -> Any:
        """Return a function of a module."""
        try:
            return _Function(module.get_function(name))
        except cp.cuda.driver.CUDADriverError as error:
            if error.status == driver.CUresult.CUDA_ERROR_NOT_FOUND:
                raise ArgumentError(
                    f'the module has no kernel {name!r}; declare it extern "C" __global__, or name an instance of a '
                    "template in name_expressions"
                ) from None
            _refuse(error, name)

    def attributes(self, function: Any) -> dict[str, int]:
        """Return what a function needs and may have."""
        return {name: _attribute(function.handle, theirs) for name, theirs in _ATTRIBUTES.items()}

    def set_attribute(self, function: Any, name: str, value: int) -> None:
        """Set an attribute."""
        if name not in _SETTABLE:
            raise ArgumentError(f"kernel: {name!r:.40} cannot be set; {' and '.join(_SETTABLE)} can")
        (status,) = driver.cuFuncSetAttribute(function.handle, _named(_ATTRIBUTES[name]), value)
        _check(status, f"kernel: {name} = {value}")

    def parameter_sizes(self, function: Any) -> tuple[int, ...] | None:
        """Return the sizes of a function's parameters; None for a driver that is older than CUDA 12.4."""
        ask = getattr(driver, "cuFuncGetParamInfo", None)
        sizes: list[int] = []
        try:
            while ask is not None and len(sizes) < _MOST_PARAMETERS:
                status, _, size = ask(function.handle, len(sizes))
                if status != driver.CUresult.CUDA_SUCCESS:
                    is_end = status == driver.CUresult.CUDA_ERROR_INVALID_VALUE
                    return tuple(sizes) if is_end else None
                sizes.append(int(size))
        except (RuntimeError, NotImplementedError):  # the library has no such function
            pass
        return None

    def tensor_map(self, address: int, tensor_map: TensorMap) -> bytes:
        """Return the map of a tensor at an address."""
        return _encoded(address, tensor_map)

    def prepare(self, function: Any, geometry: Geometry, parameters: int) -> Launch:
        """Return what launches a function."""
        make = _plain_launch if geometry.cluster is None and not geometry.flags else _configured_launch
        launch = make(function, geometry, parameters)
        if device_count() < 2:
            return launch
        index = self._index

        def launch_there(stream: int, grid: Sizes) -> None:
            with current_device(index):
                launch(stream, grid)

        return launch_there


class _Function:
    """A function as CuPy and the driver's bindings know it; CuPy's object keeps its module loaded."""

    __slots__ = ("_function", "handle", "pointer")

    def __init__(self, function: Any) -> None:
        self._function = function
        self.pointer = int(function.ptr)
        self.handle = driver.CUfunction(self.pointer)


def _plain_launch(function: _Function, geometry: Geometry, parameters: int) -> Launch:
    call, failure, pointer = cp.cuda.driver.launchKernel, cp.cuda.driver.CUDADriverError, function.pointer
    (bx, by, bz), shared = geometry.block, geometry.shared

    def launch(stream: int, grid: Sizes) -> None:
        gx, gy, gz = grid
        try:
            call(pointer, gx, gy, gz, bx, by, bz, shared, stream, parameters, 0)
        except failure as error:
            _refuse(error, "launch")

    return launch


def _configured_launch(function: _Function, geometry: Geometry, parameters: int) -> Launch:
    handle = function.handle

    def launch(stream: int, grid: Sizes) -> None:
        (status,) = driver.cuLaunchKernelEx(_config(handle, geometry, grid, stream), handle, parameters, 0)
        _check(status, "launch")

    return launch


@functools.cache
def kernel_driver_of(device: int) -> CudaKernelDriver:
    """Return the driver of a GPU, which there is one of in a process."""
    return CudaKernelDriver(device)


def _config(function: Any, geometry: Geometry, grid: Sizes, stream: int) -> Any:
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = geometry.block
    config.sharedMemBytes, config.hStream = geometry.shared, stream
    attributes = []
    if geometry.cluster is not None:
        if geometry.cluster[0] * geometry.cluster[1] * geometry.cluster[2] > _PORTABLE_CLUSTER:
            driver.cuFuncSetAttribute(function, _named("CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED"), 1)
        cluster = _launch_attribute("CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION")
        dimensions = cluster.value.clusterDim
        dimensions.x, dimensions.y, dimensions.z = geometry.cluster
        attributes.append(cluster)
    if geometry.flags & COOPERATIVE:
        attributes.append(_launch_attribute("CU_LAUNCH_ATTRIBUTE_COOPERATIVE"))
        attributes[-1].value.cooperative = 1
    if geometry.flags & PROGRAMMATIC:
        attributes.append(_launch_attribute("CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"))
        attributes[-1].value.programmaticStreamSerializationAllowed = 1
    config.attrs, config.numAttrs = attributes, len(attributes)
    return config


@functools.lru_cache(_KEPT_MAPS)
def _encoded(address: int, wanted: TensorMap) -> bytes:
    """Return a map that the driver has encoded: innermost dimensions first, strides in bytes without the innermost."""
    long, word = driver.cuuint64_t, driver.cuuint32_t
    try:
        kind, swizzle = driver.CUtensorMapDataType(wanted.kind), driver.CUtensorMapSwizzle(wanted.swizzle)
    except ValueError as error:
        raise ArgumentError(f"map of a tensor: {error}") from None
    rank, fills = len(wanted.box), driver.CUtensorMapFloatOOBfill
    nan, zero = fills.CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA, fills.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
    if not 1 <= rank <= _MOST_DIMENSIONS or {len(wanted.shape), len(wanted.strides)} != {rank}:
        raise ArgumentError(
            f"map of a tensor: {rank} dimensions; 1 to {_MOST_DIMENSIONS} are possible, of shape as of box"
        )
    status, encoded = driver.cuTensorMapEncodeTiled(
        kind, rank, address, [long(size) for size in reversed(wanted.shape)],
        [long(stride * wanted.itemsize) for stride in reversed(wanted.strides[:-1])],
        [word(size) for size in reversed(wanted.box)], [word(1)] * rank,
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        nan if wanted.nan else zero,
    )  # fmt: skip
    _check(status, f"map of a tensor {wanted}")
    return ctypes.string_at(encoded.getPtr(), _MAP_BYTES)


def _launch_attribute(name: str) -> Any:
    attribute = driver.CUlaunchAttribute()
    attribute.id = getattr(driver.CUlaunchAttributeID, name)
    return attribute


def _attribute(function: Any, name: str) -> int:
    status, value = driver.cuFuncGetAttribute(_named(name), function)
    _check(status, name)
    return int(value)


@functools.cache
def _named(name: str) -> Any:
    return getattr(driver.CUfunction_attribute, name)


def _figure(device: int, name: str) -> int:
    status, value = driver.cuDeviceGetAttribute(getattr(driver.CUdevice_attribute, name), device)
    return int(value) if status == driver.CUresult.CUDA_SUCCESS else 0


def _log_of(code: bytes) -> str:
    """Return what the driver's assembler says of PTX text that it refuses; nothing of machine code."""
    if code.startswith(b"\x7fELF"):
        return ""
    log = bytearray(_LOG_BYTES)
    options = [driver.CUjit_option.CU_JIT_ERROR_LOG_BUFFER, driver.CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    try:
        driver.cuModuleLoadDataEx(code, len(options), options, [log, _LOG_BYTES])
    except (TypeError, RuntimeError):  # the error stands without its log
        return ""
    said = bytes(log).partition(b"\0")[0].decode(errors="replace").strip()
    return f": {said}" if said else ""


def _refuse(error: Any, what: str) -> NoReturn:
    """Raise what CuPy has raised as an error of ours, where it is one of the code that a client brought."""
    _check(driver.CUresult(error.status), what)
    raise error


def _check(status: Any, what: str) -> None:
    if status == driver.CUresult.CUDA_SUCCESS:
        return
    if status in _REFUSALS:
        raise ArgumentError(f"{what}: {status.name}")
    if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        raise OutOfMemoryError(f"{what}: {status.name}")
    raise RuntimeError(f"{what}: {status.name}")
