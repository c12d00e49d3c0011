"""Events as ``torch.autograd.profiler_util`` has them, single ones and averages, and lists of them.

Times are microseconds. An event on the host is what the worker did; one on a GPU is a kernel or a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from ._text import format_time


class DeviceType(Enum):
    """Where an event happened."""

    CPU = 0
    CUDA = 1


class RecordScope(Enum):
    """What kind of thing an event on the host is; ``FunctionEvent.scope`` has its number."""

    FUNCTION = 0
    BACKWARD_FUNCTION = 1
    TORCHSCRIPT_FUNCTION = 2
    KERNEL_FUNCTION_DTYPE = 3
    CUSTOM_CLASS = 4
    BUILD_FEATURE = 5
    LITE_INTERPRETER = 6
    USER_SCOPE = 7
    STATIC_RUNTIME_OP = 8
    STATIC_RUNTIME_MODEL = 9


class Kernel(NamedTuple):
    """A kernel that an operation has launched, and its time in microseconds."""

    name: str
    device: int
    duration: float


class Interval:
    """A time from ``start`` to ``end``, in microseconds."""

    __slots__ = ("end", "start")

    def __init__(self, start: float, end: float) -> None:
        self.start, self.end = start, end

    def elapsed_us(self) -> float:
        """Return its length."""
        return self.end - self.start


def _shown(name: str) -> property:
    return property(lambda event: format_time(getattr(event, name)))


class _Times:
    """Names for times that single events and averages share; those of ``cuda`` are older names of the device's."""

    count: int
    cpu_time_total: float
    device_time_total: float
    self_cpu_time_total: float
    self_device_time_total: float
    device_memory_usage: int
    self_device_memory_usage: int

    @property
    def cpu_time(self) -> float:
        """The host's time of one call."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def device_time(self) -> float:
        """The device's time of one call."""
        return self.device_time_total / self.count if self.count else 0.0

    cpu_time_str, cpu_time_total_str, self_cpu_time_total_str = map(
        _shown, ("cpu_time", "cpu_time_total", "self_cpu_time_total")
    )
    device_time_str, device_time_total_str, self_device_time_total_str = map(
        _shown, ("device_time", "device_time_total", "self_device_time_total")
    )
    cuda_time = property(lambda event: event.device_time)
    cuda_time_total = property(lambda event: event.device_time_total)
    self_cuda_time_total = property(lambda event: event.self_device_time_total)
    cuda_memory_usage = property(lambda event: event.device_memory_usage)
    self_cuda_memory_usage = property(lambda event: event.self_device_memory_usage)


class FunctionEvent(_Times):
    """One event: an operation, a node of the backward graph, a labelled range, a wait, or work of a GPU.

    What PyTorch's profiler tells besides, of Python's functions and of arrows, is in the trace alone.
    """

    event_metadata = None
    metadata_json = ""
    is_python_function = flow_start = False
    linked_correlation_id = flow_id = flow_type = 0
    python_id = python_parent_id = python_module_id = -1

    def __init__(
        self, id: int, name: str, thread: int, start_us: float, end_us: float, overload_name: str | None = None,
        fwd_thread: int | None = None, input_shapes: Any = None, stack: list[str] | None = None, scope: int = 0,
        use_device: str | None = None, cpu_memory_usage: int = 0, device_memory_usage: int = 0, is_async: bool = False,
        is_remote: bool = False, sequence_nr: int = -1, node_id: int = -1, device_type: DeviceType = DeviceType.CPU,
        device_index: int = 0, device_resource_id: int | None = None, is_legacy: bool = False, flops: int | None = None,
        trace_name: str | None = None, concrete_inputs: list[Any] | None = None, kwinputs: dict[str, Any] | None = None,
        is_user_annotation: bool = False, input_dtypes: list[str] | None = None,
        structured_input_shapes: Any = None, structured_input_strides: Any = None,
    ) -> None:  # fmt: skip
        self.input_dtypes = input_dtypes
        self.structured_input_shapes, self.structured_input_strides = structured_input_shapes, structured_input_strides
        self.id, self.node_id, self.name, self.overload_name = id, node_id, name, overload_name
        self.trace_name = trace_name or name
        self.time_range = Interval(start_us, end_us)
        self.thread, self.fwd_thread = thread, fwd_thread
        self.kernels: list[Kernel] = []
        self.count = 1
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None
        self.input_shapes, self.concrete_inputs, self.kwinputs = input_shapes, concrete_inputs, kwinputs or {}
        self.stack = stack or []
        self.scope, self.use_device = scope, use_device
        self.cpu_memory_usage, self.device_memory_usage = cpu_memory_usage, device_memory_usage
        self.is_async, self.is_remote, self.is_legacy = is_async, is_remote, is_legacy
        self.sequence_nr = sequence_nr
        self.device_type, self.device_index = device_type, device_index
        self.device_resource_id = thread if device_resource_id is None else device_resource_id
        self.flops, self.is_user_annotation = flops, is_user_annotation
        self.self_cpu_percent = self.total_cpu_percent = self.total_device_percent = -1

    @property
    def key(self) -> str:
        """By what events are averaged."""
        return self.name

    @property
    def external_id(self) -> int:
        """The number by which the trace names it."""
        return self.id

    @property
    def activity_type(self) -> str:
        """Its category in the trace."""
        if self.is_user_annotation:
            return "user_annotation"
        return "cpu_op" if self.device_type is DeviceType.CPU else "kernel"

    def append_kernel(self, name: str, device: int, duration: float) -> None:
        """Add a kernel that this has launched."""
        self.kernels.append(Kernel(name, device, duration))

    def append_cpu_child(self, child: FunctionEvent) -> None:
        """Add an event that happened within this one."""
        self.cpu_children.append(child)

    def set_cpu_parent(self, parent: FunctionEvent) -> None:
        """Set the event within which this one happened."""
        self.cpu_parent = parent

    @property
    def cpu_time_total(self) -> float:  # type: ignore[override]
        """The time from begin to end where this happened on the host."""
        return self.time_range.elapsed_us() if self.device_type is DeviceType.CPU else 0

    @property
    def self_cpu_time_total(self) -> float:  # type: ignore[override]
        """The same without what happened within it."""
        return self.cpu_time_total - sum([child.cpu_time_total for child in self.cpu_children])

    @property
    def device_time_total(self) -> float:  # type: ignore[override]
        """The time of the kernels that this and what happened within it has launched; of a kernel its own."""
        if self.device_type is not DeviceType.CPU:
            return self.time_range.elapsed_us()
        own = sum([kernel.duration for kernel in self.kernels])
        return own + sum([child.device_time_total for child in self.cpu_children])

    @property
    def self_device_time_total(self) -> float:  # type: ignore[override]
        """The same without what happened within it."""
        if self.device_type is not DeviceType.CPU:
            return self.device_time_total
        return sum([kernel.duration for kernel in self.kernels])

    @property
    def self_cpu_memory_usage(self) -> int:
        """Bytes of the host's memory allocated, less those freed, without what happened within it."""
        return self.cpu_memory_usage - sum([child.cpu_memory_usage for child in self.cpu_children])

    @property
    def self_device_memory_usage(self) -> int:  # type: ignore[override]
        """The same of the device's memory."""
        return self.device_memory_usage - sum([child.device_memory_usage for child in self.cpu_children])

    def __repr__(self) -> str:
        return (
            f"<FunctionEvent id={self.id} name={self.name} device_type={self.device_type} cpu_time={self.cpu_time_str} "
            f"start_us={self.time_range.start} end_us={self.time_range.end} "
            f"cpu_children={[child.id for child in self.cpu_children]} {self.use_device}_time={self.device_time_str} "
            f"thread={self.thread} input_shapes={self.input_shapes}>"
        )


_FIRST = (
    "key", "node_id", "is_async", "is_remote", "cpu_parent", "cpu_children", "overload_name", "input_shapes", "stack",
    "scope", "device_type", "is_legacy", "use_device", "is_user_annotation",
)  # fmt: skip
_SUMS = (
    "cpu_time_total", "device_time_total", "self_cpu_time_total", "self_device_time_total", "cpu_memory_usage",
    "device_memory_usage", "self_cpu_memory_usage", "self_device_memory_usage", "count",
)  # fmt: skip


class FunctionEventAvg(_Times):
    """Events of one key: sums of their times and memory, and how many there were."""

    def __init__(self) -> None:
        self.key: str | None = None
        self.count = self.node_id = 0
        self.is_async = self.is_remote = self.is_legacy = self.is_user_annotation = False
        self.use_device: str | None = None
        self.cpu_time_total = self.device_time_total = self.self_cpu_time_total = self.self_device_time_total = 0.0
        self.input_shapes: Any = None
        self.overload_name: str | None = None
        self.stack: list[str] = []
        self.scope: int | None = None
        self.cpu_memory_usage = self.device_memory_usage = 0
        self.self_cpu_memory_usage = self.self_device_memory_usage = 0
        self.cpu_children: list[FunctionEvent] | None = None
        self.cpu_parent: FunctionEvent | None = None
        self.device_type = DeviceType.CPU
        self.flops = 0

    def add(self, other: Any) -> FunctionEventAvg:
        """Add an event of the same key, or an average."""
        if self.key is None:
            for name in _FIRST:
                setattr(self, name, getattr(other, name))
        elif other.key != self.key:
            raise ValueError(f"an average of {self.key} cannot take {other.key}")
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.flops += other.flops or 0
        return self

    __iadd__ = add

    def __repr__(self) -> str:
        device = self.use_device or "cuda"
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} "
            f"cpu_time={self.cpu_time_str}  self_{device}_time={self.self_device_time_total_str} "
            f"{device}_time={self.device_time_str} input_shapes={self.input_shapes} "
            f"cpu_memory_usage={self.cpu_memory_usage} {device}_memory_usage={self.device_memory_usage}>"
        )


Key = Callable[[FunctionEvent], tuple[Any, ...]]


def key_of(by_shape: bool, by_stack: int, by_overload: bool) -> Key:
    """Return the function that says which events are averaged together."""

    def key(event: FunctionEvent) -> tuple[Any, ...]:
        return (
            event.key, event.node_id, event.device_type, event.is_user_annotation,
            event.overload_name if by_overload else "", str(event.input_shapes) if by_shape else "",
            tuple(event.stack[:by_stack]),
        )  # fmt: skip

    return key
