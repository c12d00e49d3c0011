"""Numba's ``@cuda.jit`` kernels with telegrad's tensors: compiled here to PTX for the server's GPU, and launched there.

Where this machine has a GPU, calls without our tensors go on as they did. Imported with Numba alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np
from numba import cuda
from numba.cuda import dispatcher as numba_dispatcher
from numba.cuda import types
from numba.cuda.args import ArgHint, In
from numba.cuda.core import sigutils
from numba.cuda.errors import normalize_kernel_dimensions
from numba.cuda.np import numpy_support
from numba.cuda.typing.typeof import Purpose, typeof

from telegrad._session.current import current_session
from telegrad._session.own_code import count_as_own
from telegrad._session.session import ClientSession
from telegrad._tensor.tensor import Tensor
from telegrad.cuda.streams import Stream
from telegrad.cuda.streams import stream as on_stream
from telegrad_protocol import ptx
from telegrad_protocol.errors import ArgumentTypeError, NotSupportedError
from telegrad_protocol.kernel_messages import BYTES
from telegrad_protocol.meta import Device

from . import numba_prepared
from .numba_arrays import DeviceArray, the_gpu, to_device
from .numba_module import is_local
from .numba_prepared import array_parameters
from .remote_kernel import CompiledKernel, check_tensor, place_of

_THREADS = 256
"""Threads per block of ``forall`` where the program does not say."""
_MOST_CONFIGURED = 1024
"""Grids and blocks of a kernel that are kept, with the kernel."""
_OPTIONS = ("debug", "lineinfo", "fastmath", "opt", "launch_bounds")
_original_configure = numba_dispatcher.CUDADispatcher.configure
_original_compile = numba_dispatcher.CUDADispatcher.compile
_original_disable_compile = numba_dispatcher.CUDADispatcher.disable_compile
_original_forall = numba_dispatcher.CUDADispatcher.forall


def install() -> None:
    """Let Numba's kernels take telegrad's tensors."""
    for package in (numba, cuda):
        count_as_own(os.path.dirname(package.__file__))
    numba_dispatcher.CUDADispatcher.configure = _configure
    numba_dispatcher.CUDADispatcher.compile = _compile
    numba_dispatcher.CUDADispatcher.disable_compile = _disable_compile
    numba_dispatcher.CUDADispatcher.forall = _forall


def _configure(self: Any, griddim: Any, blockdim: Any, stream: Any = 0, sharedmem: int = 0) -> Configured:
    try:
        return self.__dict__["_telegrad_configured"][griddim, blockdim, stream, sharedmem]  # type: ignore[no-any-return]
    except KeyError:
        known = self.__dict__.setdefault("_telegrad_configured", {})
    except TypeError:  # sizes in a list, or such as are refused
        known = None
    grid, block = normalize_kernel_dimensions(griddim, blockdim)
    configured = Configured(self, grid, block, stream, sharedmem)
    if known is not None:
        if len(known) >= _MOST_CONFIGURED:
            known.clear()
        known[griddim, blockdim, stream, sharedmem] = configured
    return configured


def _compile(self: Any, sig: Any) -> Any:
    """Compile for the GPU of this machine; without one, kernels with signatures wait for their first call."""
    if is_local():
        return _original_compile(self, sig)
    argument_types, _ = sigutils.normalize_signature(sig)
    self.__dict__.setdefault("_telegrad_signatures", []).append(argument_types)
    return None


def _disable_compile(self: Any, val: bool = True) -> None:
    """Take no further signatures; the declared ones may wait for their first call."""
    if self.overloads or "_telegrad_signatures" not in self.__dict__:
        _original_disable_compile(self, val)


def _forall(self: Any, ntasks: int, tpb: int = 0, stream: Any = 0, sharedmem: int = 0) -> Callable[..., None]:
    """Return what launches a thread per task."""

    def launch(*args: Any) -> None:
        if not any(isinstance(arg, Tensor) for arg in args):
            _original_forall(self, ntasks, tpb, stream, sharedmem)(*args)
        elif ntasks:
            threads = tpb or _THREADS
            _configure(self, -(-ntasks // threads), threads, stream, sharedmem)(*args)

    return launch


class Configured:
    """A kernel with its grid and block: ``kernel[grid, block, stream, shared_memory]``."""

    def __init__(self, dispatcher: Any, grid: Any, block: Any, stream: Any, shared: int) -> None:
        self.dispatcher, self.griddim, self.blockdim = dispatcher, grid, block
        self.stream, self.sharedmem = stream, shared
        x, y, z = map(int, grid)
        self._grid = x, y, z
        x, y, z = map(int, block)
        self._block = x, y, z
        self._is_usual = type(stream) is int and stream == 0

    def __call__(self, *args: Any) -> None:
        """Launch on the GPU that the tensors are on; nothing waits for it but the first call."""
        if self._is_usual and numba_prepared.launch(self.dispatcher, self._grid, self._block, args, self.sharedmem):
            return
        if any([isinstance(arg, DeviceArray) for arg in args]):
            self._launch_on_arrays(args)
            return
        where = place_of(_flat(args))
        if where is None:
            if any(isinstance(arg, Tensor) for arg in _flat(args)):
                raise ArgumentTypeError(f"{self.dispatcher.__name__}: its tensors are on the CPU; bring them to a GPU")
            if is_local():
                usual = self.griddim, self.blockdim, self.stream, self.sharedmem
                _original_configure(self.dispatcher, *usual)(*args)
            else:
                self._launch_on_arrays(args)
            return
        if isinstance(self.stream, Stream):
            with on_stream(self.stream):
                self._launch(where, args)
        elif self.stream in (0, None):
            self._launch(where, args)
        else:
            raise ArgumentTypeError(f"{self.dispatcher.__name__}: pass a stream of telegrad.cuda, not one of Numba's")

    def _launch_on_arrays(self, args: tuple[Any, ...]) -> None:
        """Launch on device arrays, and on arrays of this machine, which are copied to the GPU, and back but for ``In``.
        """  # fmt: skip
        values = [arg.value if isinstance(arg, ArgHint) else arg for arg in args]
        copies = {place: to_device(arg) for place, arg in enumerate(values) if isinstance(arg, np.ndarray)}
        arrays = [copies.get(place, arg) for place, arg in enumerate(values)]
        tensors = tuple([arg.tensor if isinstance(arg, DeviceArray) else arg for arg in arrays])
        if any(isinstance(arg, Tensor) for arg in tensors):
            self(*tensors)
        else:
            self._launch((current_session(), the_gpu()), tensors)
        for place, copy in copies.items():
            if not isinstance(args[place], In):
                copy.copy_to_host(values[place])

    def _launch(self, where: tuple[ClientSession, Device], args: tuple[Any, ...]) -> None:
        name = self.dispatcher.__name__
        kinds = _declared(self.dispatcher, tuple([_type_of(name, arg) for arg in args]))
        kernel = _compiled(self.dispatcher, where, kinds)
        forms: list[str] = []
        values: list[Any] = []
        for place, (kind, arg) in enumerate(zip(kinds, args, strict=True)):
            _lower(name, place, kind, arg, where, forms, values)
        remote, joined = kernel.on(*where), "".join(forms)
        remote.launch(self._grid, self._block, joined, values, int(self.sharedmem))
        numba_prepared.remember(self.dispatcher, remote, joined, kinds, args)


def _flat(args: Any) -> Iterator[Any]:
    for arg in args:
        if isinstance(arg, (tuple, list)):
            yield from _flat(arg)
        else:
            yield arg


def _compiled(dispatcher: Any, where: tuple[ClientSession, Device], kinds: tuple[Any, ...]) -> CompiledKernel:
    """Return the kernel for arguments of some types, compiled where it was not yet."""
    session, device = where
    known = session.kernels.setdefault(_compiled, {})
    if device not in known:
        known[device] = tuple(session.query("device_properties", device.name)["capability"])
    capability = known[device]
    kernels: dict[Any, CompiledKernel] = dispatcher.__dict__.setdefault("_telegrad_kernels", {})
    kernel = kernels.get((capability, kinds))
    if kernel is None:
        kernel = kernels[capability, kinds] = _compile_for(dispatcher, capability, kinds)
    return kernel


def _declared(dispatcher: Any, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the signature that was declared for such arguments, or the arguments' own types if none was."""
    declared = dispatcher.__dict__.get("_telegrad_signatures")
    if not declared:
        return kinds
    for signature in declared:
        if len(signature) == len(kinds) and all(map(_converts, kinds, signature)):
            return tuple(signature)
    raise ArgumentTypeError(f"{dispatcher.__name__}: no declared signature takes {', '.join(map(str, kinds))}")


def _converts(kind: Any, wanted: Any) -> bool:
    if isinstance(kind, types.Array) and isinstance(wanted, types.Array):
        return kind.dtype == wanted.dtype and kind.ndim == wanted.ndim and wanted.layout in (kind.layout, "A")
    return kind == wanted or (isinstance(kind, types.Number) and isinstance(wanted, types.Number))


def _compile_for(dispatcher: Any, capability: tuple[int, int], kinds: tuple[Any, ...]) -> CompiledKernel:
    options = dispatcher.targetoptions
    if options.get("link"):
        raise NotSupportedError(f"{dispatcher.__name__}: files that are linked are not sent; use cuda.RawKernel")
    given = {name: options[name] for name in _OPTIONS if options.get(name) is not None}
    text, _ = cuda.compile(
        dispatcher.py_func, types.void(*kinds), device=False, abi="numba", output="ptx", cc=capability, **given
    )
    return CompiledKernel(next(iter(ptx.entries(text))), "ptx", text.encode(), text)


def _type_of(name: str, arg: Any) -> Any:
    """Return Numba's type of an argument."""
    if isinstance(arg, Tensor):
        return array_parameters(name, arg._meta).kind
    if isinstance(arg, np.ndarray):
        raise ArgumentTypeError(f"{name}: an array on this machine cannot be passed beside tensors; make one of it")
    if isinstance(arg, tuple):
        kinds = [_type_of(name, item) for item in arg]
        return types.UniTuple(kinds[0], len(kinds)) if len(set(kinds)) == 1 else types.Tuple(kinds)
    return typeof(arg, Purpose.argument)


def _lower(
    name: str, place: int, kind: Any, arg: Any, where: tuple[ClientSession, Device], forms: list[str], values: list[Any]
) -> None:
    """Append the parameters that an argument has in Numba's kernels."""
    if isinstance(arg, Tensor):
        check_tensor(name, place, arg, *where)
        array = array_parameters(name, arg._meta)
        forms.append(array.forms)
        values += [*array.sizes, arg._id, *array.extents]
    elif isinstance(arg, tuple):
        for item_kind, item in zip(kind, arg, strict=True):
            _lower(name, place, item_kind, item, where, forms, values)
    elif isinstance(kind, types.Complex):
        part = np.float32 if kind == types.complex64 else np.float64
        forms.append(BYTES * 2)
        values += [part(arg.real).tobytes(), part(arg.imag).tobytes()]
    elif isinstance(kind, types.Boolean):
        forms.append(BYTES)
        values.append(np.bool_(arg).tobytes())
    elif isinstance(kind, (types.Integer, types.Float)):
        forms.append(BYTES)
        values.append(numpy_support.as_dtype(kind).type(arg).tobytes())
    else:
        shown = type(arg).__name__
        raise NotSupportedError(f"{name}: argument {place + 1} is {shown}; tensors, numbers and tuples can be passed")
