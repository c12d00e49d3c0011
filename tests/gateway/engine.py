"""An engine of a few NumPy operations that answers ``server.ipc.requests``: what the gateway needs, and no more.

The operation ``open`` fails with the numbers of uploads and reads that have not ended.

``Host`` stands where the worker expects its engine, so that the gateway's tests do not wait for the real one.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any

import ml_dtypes
import msgspec
import numpy as np

from server.ipc import requests as verbs
from server.ipc.measures import ChoiceCounts, CompilationCounts, TenantLoad, WorkerState
from server.worker import host_protocol
from server.worker.measures import Histogram
from telegrad_protocol.errors import (
    ArgumentError,
    DeviceError,
    IndexOutOfRangeError,
    OutOfMemoryError,
    UnknownIdError,
)
from telegrad_protocol.messages import SERVER_IDS

CAPACITY = 1 << 34


def _matmul(a: Any, b: Any) -> Any:
    if a.shape[-1] != b.shape[0]:
        raise ArgumentError(f"matmul: cannot multiply {list(a.shape)} by {list(b.shape)}")
    return a @ b


def _select(a: Any, dim: int, index: int) -> Any:
    if index >= a.shape[dim]:
        error = IndexOutOfRangeError(f"select: index {index} is out of range")
        error.operation, error.operands = "select", f"float32[{','.join(map(str, a.shape))}]"
        raise error
    return np.take(a, index, dim)


def _add_(a: Any, b: Any) -> Any:
    a += b
    return a


OPERATIONS: dict[str, Any] = {
    "add": lambda a, b, alpha=1: a + b * alpha,
    "add_": _add_,
    "matmul": _matmul,
    "select": _select,
    "zeros": lambda size, dtype="float32": np.zeros(size, dtype),
    "cat": lambda parts, dim=0: np.concatenate(parts, dim),
    "unbind": lambda a: list(a),
    "mul": lambda a, b: a * (complex(*b["complex"]) if isinstance(b, dict) else b),
    "boom": lambda: 1 // 0,
}


def _dtype(name: str) -> Any:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


class Session:
    """Tensors of one client."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.tensors: dict[int, Any] = {}
        self.leaves: set[int] = set()
        self.uploads: dict[int, tuple[verbs.UploadBegin, bytearray]] = {}
        self.reads: dict[int, bytes] = {}
        self.polls = 0
        self._numbers = itertools.count(1)
        self._named = itertools.count(SERVER_IDS)

    has_work = waits = blocked = is_ahead = shows_memory = False
    queued = ahead = 0

    def receive(self, kind: int, body: memoryview) -> None: ...
    def run(self, budget: int) -> int:
        return 0

    def poll(self) -> None: ...
    def frames_left(self) -> None: ...

    def pause(self) -> None: ...

    def unpause(self) -> None: ...
    def take_device_seconds(self) -> float:
        return 0.0

    def take_replies(self) -> list[Any]:
        return []

    def close(self) -> None:
        self.tensors.clear()
        self.host.sessions.discard(self)

    def control(self, verb: str, args: list[Any]) -> Any:
        return verbs.to_answer(getattr(self, f"_{verb}")(msgspec.convert(args, verbs.SESSION_REQUESTS[verb])))

    def _get(self, id: int) -> Any:
        if id not in self.tensors:
            raise UnknownIdError(f"the session holds no tensor {id}")
        return self.tensors[id]

    def _info(self, id: int) -> verbs.TensorInfo:
        array = self._get(id)
        strides = tuple(stride // array.itemsize for stride in array.strides)
        return verbs.TensorInfo(id, array.dtype.name, array.shape, strides, 0, "cpu", id in self.leaves)

    def _keep(self, ids: tuple[int, ...], arrays: list[Any], requires_grad: bool) -> list[verbs.TensorInfo]:
        self.tensors.update(zip(ids, map(np.asarray, arrays)))
        self.leaves.update(ids if requires_grad else ())
        return [self._info(id) for id in ids]

    def _run_ops(self, request: verbs.RunOps) -> list[list[verbs.TensorInfo]]:
        answers = []
        for i, step in enumerate(request.steps):
            try:
                answers.append(self._step(step))
            except Exception as error:
                error.site = f"ops[{request.first + i}]"  # type: ignore[attr-defined]
                raise
        return answers

    def _step(self, step: verbs.Step) -> list[verbs.TensorInfo]:
        if isinstance(step, verbs.NewTensor):
            array = np.frombuffer(step.data, _dtype(step.dtype)).reshape(step.shape).copy()
            return self._keep((next(self._named) if step.out is None else step.out,), [array], step.requires_grad)
        if step.op == "open":
            raise ArgumentError(str([len(self.uploads), len(self.reads)]))
        if step.op not in OPERATIONS:
            raise ArgumentError(f"there is no operation {step.op!r}")
        if step.op.endswith("_"):
            self._resolve([OPERATIONS[step.op](*self._resolve(step.args))])
            return [self._info(step.args[0]["tensor"])]
        result = OPERATIONS[step.op](*self._resolve(step.args), **{k: self._resolve(v) for k, v in step.kwargs.items()})
        arrays = result if isinstance(result, list) else [result]
        return self._keep(step.out or tuple(next(self._named) for _ in arrays), arrays, step.requires_grad)

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._resolve(item) for item in value]
        return self._get(value["tensor"]) if isinstance(value, dict) and "tensor" in value else value

    def _backward(self, request: verbs.Backward) -> list[tuple[int, verbs.TensorInfo]]:
        wanted = sorted(self.leaves) if request.inputs is None else request.inputs
        grads = [self._keep((next(self._named),), [np.ones_like(self._get(id))], False)[0] for id in wanted]
        return list(zip(wanted, grads))

    def _describe(self, request: verbs.Describe) -> list[verbs.TensorInfo]:
        return [self._info(id) for id in request.ids]

    def _free(self, request: verbs.Free) -> None:
        for id in request.ids:
            self._get(id)
        for id in request.ids:
            del self.tensors[id]

    def _upload_begin(self, request: verbs.UploadBegin) -> int:
        nbytes = int(np.prod(request.shape)) * _dtype(request.dtype).itemsize
        if request.device not in ("", "cpu"):
            raise DeviceError(f"there is no device {request.device}")
        if nbytes > CAPACITY:
            raise OutOfMemoryError(f"tried to allocate {nbytes} bytes, {CAPACITY} are free")
        number = next(self._numbers)
        self.uploads[number] = request, bytearray()
        return number

    def _upload_chunk(self, request: verbs.UploadChunk) -> None:
        data = self.uploads[request.upload][1]
        if request.offset != len(data):
            raise ArgumentError("chunk out of order")
        data += request.data

    def _upload_end(self, request: verbs.UploadEnd) -> verbs.TensorInfo | None:
        announced, data = self.uploads.pop(request.upload)
        if not request.commit:
            return None
        array = np.frombuffer(data, _dtype(announced.dtype)).reshape(announced.shape)
        return self._keep((announced.id,), [array], False)[0]

    def _read_begin(self, request: verbs.ReadBegin) -> verbs.ReadInfo:
        number = next(self._numbers)
        self.reads[number] = self._get(request.id).tobytes()
        return verbs.ReadInfo(number, self._info(request.id), len(self.reads[number]))

    def _read_chunk(self, request: verbs.ReadChunk) -> bytes | None:
        self.polls += 1
        if self.polls % 3 == 0:
            return None
        return self.reads[request.read][request.offset : request.offset + request.size]

    def _read_end(self, request: verbs.ReadEnd) -> None:
        self.reads.pop(request.read, None)


class Host(host_protocol.Host):
    """The devices of this engine: a CPU, and what passes for a GPU where the worker is given one."""

    def __init__(self, devices: list[str]) -> None:
        self.devices = devices or ["cpu"]
        self.sessions: set[Session] = set()
        self.free_memory = CAPACITY
        self.capability: tuple[int, int] | None = None

    def open(self, number: int, options: dict[str, Any]) -> Session:
        session = Session(self)
        self.sessions.add(session)
        return session

    def check_devices(self, error: Exception) -> None: ...

    def request_pause(self, give_way: Callable[[], None]) -> None: ...

    def hello(self) -> dict[str, Any]:
        return {
            "table_hash": "0123", "dtypes": ["float32"], "devices": self.devices, "default_device": self.devices[0],
            "limits": {"chunk_bytes": 1 << 20},
        }  # fmt: skip

    def control(self, session: Session | None, verb: str, args: list[Any]) -> Any:
        if session is not None:
            return session.control(verb, args)
        request: Any = msgspec.convert(args, verbs.HOST_REQUESTS[verb])
        if verb == "memory_summary":
            return f"| summary of {request.session or 'all'} on {request.shown_as or request.device} |"
        if verb == "memory_stats":
            held = sum(array.nbytes for session in self.sessions for array in session.tensors.values())
            stats = {"allocated_bytes.all.current": held, "reserved_bytes.all.current": held, "num_ooms": 3}
            return dict.fromkeys([request.device] if request.device else self.devices, stats)
        if verb == "memory_snapshot":
            return {"segments": [], "device_traces": []}
        if verb == "memory_history":
            return None
        if verb == "measurements":
            return verbs.to_answer(self.measured())
        if verb == "counters":
            return {"local": 7}
        return verbs.to_answer([self._describe(device) for device in self.devices])

    def measured(self) -> WorkerState:
        """What the loop of a worker would answer, which a test without processes does not have."""
        turn = Histogram()
        turn.times.append(0.003)
        load = TenantLoad(1, 2, 3, 4, 5)
        return WorkerState(
            turn.state, turn.state, turn.state, turn.state, {"local": load}, 1 << 20, 0.5, CompilationCounts(1, 2, 3),
            ChoiceCounts(4, 5),
        )  # fmt: skip

    def _describe(self, device: str) -> verbs.DeviceInfo:
        kind, _, index = device.partition(":")
        return verbs.DeviceInfo(
            device, "NumPy", kind, int(index) if index else None, CAPACITY, self.free_memory, 0, 0,
            self.capability if index else None, None, os.getpid(),
        )  # fmt: skip
