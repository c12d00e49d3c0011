"""cuDNN graphs: described once per shape, built, and executed with raw pointers on the session's stream.

Everything works without cuDNN too: then nothing can be built, and whoever asks gets None. ``BUILT`` says what the first
uses of shapes have cost. Knows nothing of operations.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import util
from typing import Any

from server.engine import context
from server.engine.device.cuda_streams import CudaEvent
from server.engine.device.cupy_module import cp
from server.engine.value import Backend
from server.library_choices import library_choices
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Meta

from . import cudnn_plans
from .cudnn_plans import LARGEST_WORKSPACE
from .launch import architecture
from .used_before import used_before

try:
    import cudnn
except ImportError:  # it is optional: the generic kernels serve
    cudnn = None
library: Any = cudnn

_log = logging.getLogger(__name__)
_KEPT_WORKSPACE = 32 << 20
"""Workspaces up to this size are shared by the calls of a stream; larger ones are taken for one call only."""
_ALIGNMENT = 16
_CHOSEN = -1
"""The plan that cuDNN's heuristics put first."""
_KIND = "library"
_PARTS = ("graph", "ops", "cnn", "adv", "heuristic", "engines_precompiled", "engines_runtime_compiled")
_MOST_TRIED = 10
_TIMED_RUNS = 5


@dataclass
class Counts:
    """What was built so far: graphs, those that cuDNN refused, and the seconds that all took."""

    graphs: int = 0
    refused: int = 0
    seconds: float = 0.0
    by_name: dict[str, float] = field(default_factory=dict)


BUILT = Counts()


@cache
def version() -> int:
    """The library's version; 0 where it, or its Python front end, is not there."""
    if cudnn is None:
        return 0
    _load_library()
    try:
        return int(cudnn.backend_version())
    except RuntimeError as error:
        _log.warning(
            "cuDNN is not found: attention and convolutions are slower; install nvidia-cudnn, or set LD_LIBRARY_PATH",
            extra={"cause": str(error)},
        )
        return 0


def _load_library() -> None:
    """Load the library of NVIDIA's package, which the front end finds by its name then; a system's is found anyway."""
    for folder in _folders():
        with contextlib.suppress(OSError):
            ctypes.CDLL(f"{folder}libcudnn.so.9", mode=ctypes.RTLD_GLOBAL)


def _folders() -> list[str]:
    """Return where NVIDIA's package has its libraries, if it is there."""
    try:
        places = util.find_spec("nvidia.cudnn")
    except ModuleNotFoundError:
        return []
    return [f"{place}/lib/" for place in (places and places.submodule_search_locations) or ()]


def load_beforehand(target: str) -> None:
    """Load the libraries that cuDNN itself loads with its first graphs, if the last processes needed them.

    The loader lets go of Python's lock, which cuDNN's front end does not.
    """
    if version() and used_before(target).of_kind(_KIND):
        for folder, part in itertools.product(_folders() or [""], _PARTS):
            with contextlib.suppress(OSError):
                ctypes.CDLL(f"{folder}libcudnn_{part}.so.9", mode=ctypes.RTLD_GLOBAL)


def is_available() -> bool:
    """Whether graphs can be built at all."""
    return version() > 0


def is_deterministic() -> bool:
    """Whether the session asks for sums in a fixed order."""
    current = context.current
    return current.cudnn.deterministic or current.switches.deterministic_algorithms


def data_type(dtype: DType) -> Any:
    """The type as cuDNN names it; None where it has none."""
    name = _NAMES.get(dtype)
    return name and getattr(cudnn.data_type, name)


_NAMES = {
    dtypes.float32: "FLOAT", dtypes.float16: "HALF", dtypes.bfloat16: "BFLOAT16", dtypes.float64: "DOUBLE",
    dtypes.int64: "INT64",
}  # fmt: skip


class _Handle:
    """A device's handle, and the stream that it works on."""

    def __init__(self) -> None:
        self._pointer = cudnn.create_handle()
        self._stream = -1

    def on(self, stream: int) -> Any:
        """The handle, set to a stream."""
        if stream != self._stream:
            cudnn.set_stream(self._pointer, stream)
            self._stream = stream
        return self._pointer


_HANDLES: dict[int, _Handle] = {}


def handle_of(backend: Any) -> _Handle:
    """A device's handle."""
    handle = _HANDLES.get(backend.index)
    if handle is None:
        used_before(architecture(backend.index)).note(_KIND, "cudnn")
        handle = _HANDLES[backend.index] = _Handle()
    return handle


class Graph:
    """A graph under construction. Tensors are numbered in the order in which they are named, inputs and results."""

    def __init__(self, backend: Backend, dtype: DType) -> None:
        compute = cudnn.data_type.DOUBLE if dtype is dtypes.float64 else cudnn.data_type.FLOAT
        handle = handle_of(backend).on(backend.stream)
        self.graph = cudnn.pygraph(
            io_data_type=data_type(dtype),
            intermediate_data_type=compute,
            compute_data_type=compute,
            handle=handle,
        )
        self.count = 0

    def _next(self) -> int:
        self.count += 1
        return self.count

    def input(self, shape: Size, strides: Size, dtype: DType) -> Any:
        """An operand."""
        return self.graph.tensor(dim=list(shape), stride=list(strides), data_type=data_type(dtype), uid=self._next())

    def result(self, tensor: Any, shape: Size, strides: Size, dtype: DType) -> None:
        """Say where a tensor of the graph goes."""
        tensor.set_output(True).set_dim(list(shape)).set_stride(list(strides)).set_data_type(data_type(dtype))
        tensor.set_uid(self._next())


Describe = Callable[[Graph], None]
"""Adds the operands, the operation and the results to a graph."""


class Execution:
    """A built graph; call it with the pointers of its tensors, in the order in which they were named.

    Sessions that ask for it get the plan that was the fastest of several when it was first called, others the one that
    the graph was built with; so do all where there is no ``describe``, which makes a graph for those candidates.
    """

    __slots__ = (
        "_backend", "_candidates", "_describe", "_execute", "_fastest", "_handle", "_numbers", "_scratch",
    )  # fmt: skip

    def __init__(self, backend: Any, graph: Any, count: int, describe: Callable[[], Any] | None) -> None:
        self._backend = backend
        self._execute = graph._execute  # ``execute`` asks each pointer what it is
        self._describe = describe
        self._candidates: Any = None
        self._handle = handle_of(backend)
        self._numbers = tuple(range(1, count + 1))
        self._scratch = {_CHOSEN: self._scratch_of(graph.get_workspace_size())}
        self._fastest: int | None = None

    def __call__(self, *pointers: int) -> None:
        if self._describe is None or not context.current.cudnn.benchmark:
            self._run(pointers, _CHOSEN)
            return
        if self._fastest is None:
            self._fastest = self._backend.at_once(self._find_fastest)(pointers)
        self._run(pointers, self._fastest)

    def _scratch_of(self, nbytes: int) -> Meta:
        return Meta.of((nbytes,), dtypes.uint8, self._backend.device)

    def _run(self, pointers: tuple[int, ...], plan: int) -> None:
        backend, needed = self._backend, self._scratch[plan]
        if needed.numel <= _KEPT_WORKSPACE:
            scratch = backend.workspace(needed.numel).pointer if needed.numel else 0
        else:
            taken = backend.empty(needed)  # held until the plan was launched
            scratch = taken.storage.block.pointer
        backend.launches.launch(self._perform, backend.stream, plan, scratch, *pointers)

    def _perform(self, stream: int, plan: int, scratch: int, *pointers: int) -> None:
        handle, operands = self._handle.on(stream), dict(zip(self._numbers, pointers, strict=True))
        if plan == _CHOSEN:
            self._execute(operands, scratch, handle)
        else:
            self._candidates._execute_plan_at_index(operands, scratch, plan, handle)

    def _find_fastest(self, pointers: tuple[int, ...]) -> int:
        """Build what plans there are, and time them on the very operands: they write results and nothing else."""
        begin = time.perf_counter()
        times: dict[int, float] = {}
        assert self._describe is not None
        candidates = self._candidates = cudnn_plans.ask_all(cudnn, self._describe)
        for plan in range(min(candidates.get_execution_plan_count(), _MOST_TRIED)):
            try:
                candidates.build_plan_at_index(plan)
                self._scratch[plan] = self._scratch_of(candidates.get_workspace_size_plan_at_index(plan))
                if self._scratch[plan].numel <= LARGEST_WORKSPACE:
                    times[plan] = self._time(pointers, plan)
            except (cudnn.cudnnGraphNotSupportedError, RuntimeError) as error:  # only candidates until they are built
                _log.debug("cudnn: plan %d cannot be had: %s", plan, error)
        BUILT.seconds += time.perf_counter() - begin
        return min(times, key=lambda plan: times[plan], default=_CHOSEN)

    def _time(self, pointers: tuple[int, ...], plan: int) -> float:
        """Milliseconds of a run."""
        stream = self._backend.stream
        begin, end = CudaEvent(True), CudaEvent(True)
        self._run(pointers, plan)
        begin.record(stream)
        for _ in range(_TIMED_RUNS):
            self._run(pointers, plan)
        end.record(stream)
        cp.cuda.runtime.streamSynchronize(stream)
        return begin.milliseconds_to(end) / _TIMED_RUNS


def build(
    name: str, backend: Backend, dtype: DType, describe: Describe, *, avoid: Sequence[str] = ()
) -> Execution | None:
    """The graph that ``describe`` makes, ready to run; None where cuDNN has no plan for it.

    ``avoid``: numerical notes of plans that are not wanted, such as ``TENSOR_CORE``.
    """
    begin = time.perf_counter()
    try:
        made = _Described(backend, dtype, describe)
        library_choices.asked += 1
        return Execution(backend, cudnn_plans.ask(cudnn, made, avoid), made.count, None if avoid else made)
    except cudnn_plans.refusals(cudnn) as error:
        BUILT.refused += 1
        _log.info("cudnn: no plan for %s: %s", name, error)
        return None
    finally:
        spent = time.perf_counter() - begin
        BUILT.graphs += 1
        BUILT.seconds += spent
        BUILT.by_name[name] = BUILT.by_name.get(name, 0.0) + spent


class _Described:
    """Makes the same graph of the library whenever it is called; ``count`` is how many tensors that has."""

    def __init__(self, backend: Backend, dtype: DType, describe: Describe) -> None:
        self._backend, self._dtype, self._describe = backend, dtype, describe
        self.count = 0

    def __call__(self) -> Any:
        graph = Graph(self._backend, self._dtype)
        self._describe(graph)
        self.count = graph.count
        return graph.graph


def is_aligned(meta: Meta) -> bool:
    """Whether the first element lies where cuDNN's vector accesses want it."""
    return meta.offset * meta.dtype.itemsize % _ALIGNMENT == 0
