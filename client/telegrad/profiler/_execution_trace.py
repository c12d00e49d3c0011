"""``ExecutionTraceObserver``: what was executed, as a graph of operations in a file of PyTorch's schema."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from typing import Any, Final

from telegrad_protocol.errors import AutogradError
from telegrad_protocol.tracing import recording
from telegrad_protocol.tracing.spans import Span, shown_type

from ._build import Wanted
from ._events import RecordScope
from ._results import Results, Stretch

SCHEMA: Final = "1.1.1-chakra.0.0.4"
_ROOT, _FIRST = 1, 2
"""The numbers of the node that stands for the process, and the one before the first operation, for its thread."""
_SCOPES: Final = {recording.NODE: RecordScope.BACKWARD_FUNCTION, recording.RANGE: RecordScope.USER_SCOPE}
_NOTHING: Final[dict[str, list[Any]]] = {"values": [], "shapes": [], "types": [], "strides": []}


class ExecutionTraceObserver:
    """Writes the operations of a stretch of the program, and which lies within which, into a file.

    Given to ``profile`` it writes what that records; otherwise what lies between ``start()`` and ``stop()``. Operands
    are written by shape, strides and type, numbers by their value; elements of tensors, and which operand is whose
    result, are not.
    """

    def __init__(self) -> None:
        self._path: str | None = None
        self._stretch: Stretch | None = None
        self.extra_resources_collection = False

    @staticmethod
    def build_execution_trace_obs_from_env() -> ExecutionTraceObserver | None:
        """Return an observer with a file in the temporary directory if ENABLE_PYTORCH_EXECUTION_TRACE is 1."""
        if os.environ.get("ENABLE_PYTORCH_EXECUTION_TRACE", "0") != "1":
            return None
        with tempfile.NamedTemporaryFile("w", suffix=".et.json", delete=False) as file:
            return ExecutionTraceObserver().register_callback(file.name)

    @property
    def is_registered(self) -> bool:
        """Whether there is a file to write to."""
        return self._path is not None

    @property
    def output_file_path_observer(self) -> str | None:
        """The path of the file that the trace is written to; None where none was registered."""
        return self._path

    def get_output_file_path(self) -> str | None:
        """Return the file's path; None where none is registered."""
        return self._path

    def register_callback(self, output_file_path: str) -> ExecutionTraceObserver:
        """Write to this file from now on."""
        if self._path is None:
            self._path = os.fspath(output_file_path)
        return self

    def unregister_callback(self) -> None:
        """End what is being recorded, and write to the file no longer."""
        self.stop()
        self._path = None

    def set_extra_resource_collection(self, val: bool) -> None:
        """Take whether the texts of compiled kernels are wanted; there are none beside the trace."""
        self.extra_resources_collection = val

    def is_running(self) -> bool:
        """Whether something is being recorded for this file alone."""
        return self._stretch is not None

    def start(self) -> None:
        """Record from here on; AutogradError while a profile is going on."""
        if self._path is not None and self._stretch is None:
            self._stretch = Stretch(Wanted(None, shapes=True, stacks=False, flops=False, memory=False), {})

    def stop(self) -> None:
        """End the recording and write it."""
        stretch, self._stretch = self._stretch, None
        if stretch is not None:
            self.write(stretch.stop())

    def cleanup(self) -> None:
        """Do what ``unregister_callback`` does."""
        self.unregister_callback()

    def write(self, results: Results) -> None:
        """Write a recording; what was recorded before is replaced."""
        if self._path is None:
            raise AutogradError("ExecutionTraceObserver: there is no file; call register_callback() first")
        timeline = results.captured.timeline
        began = int(min([span.begin for span in timeline.spans], default=0))
        ended = int(max([span.end for span in timeline.spans], default=0))
        document = {
            "schema": SCHEMA, "pid": timeline.recorded.process, "time": time.strftime("%Y-%m-%d %H:%M:%S"),
            "start_ts": began, "nodes": list(_nodes(timeline.spans)), "finish_ts": ended,
        }  # fmt: skip
        with open(self._path, "w", encoding="utf-8") as file:
            json.dump(document, file)


def _nodes(spans: list[Span]) -> Iterator[dict[str, Any]]:
    prefix = "[pytorch|profiler|execution_trace"
    yield _node(_ROOT, f"{prefix}|process]", _ROOT, _NOTHING, {})
    yield _node(_FIRST, f"{prefix}|thread]", _ROOT, _NOTHING, {})
    for number, span in enumerate(spans, 1):
        descriptor = span.descriptor
        operands = [_operand(*operand) for operand in zip(descriptor.dtypes, descriptor.concrete, strict=True)]
        inputs = {
            "values": [value for value, _ in operands], "shapes": descriptor.shapes,
            "types": [kind for _, kind in operands], "strides": descriptor.strides,
        }  # fmt: skip
        parent = span.parent
        attributes = {
            "rf_id": number, "seq_id": span.sequence,
            "scope": _SCOPES.get(span.kind, RecordScope.FUNCTION).value, "tid": 1,
            "fw_tid": int(span.kind == recording.NODE),
            "fw_parent": 0 if span.forward is None else _FIRST + span.forward.number,
        }  # fmt: skip
        under = _FIRST if parent is None else _FIRST + parent.number
        yield _node(_FIRST + span.number, span.name, under, inputs if descriptor.shapes else _NOTHING, attributes)


_ATTRIBUTES: Final = {
    "rf_id": "uint64", "fw_parent": "uint64", "seq_id": "int64", "scope": "uint64", "tid": "uint64", "fw_tid": "uint64",
}  # fmt: skip
_TEXTS: Final = ("op_schema", "kernel_backend", "kernel_file")


def _node(id: int, name: str, under: int, inputs: dict[str, Any], attributes: dict[str, int]) -> dict[str, Any]:
    numbers = [
        {"name": key, "type": kind, "value": attributes.get(key, -1 if key == "seq_id" else 0)}
        for key, kind in _ATTRIBUTES.items()
    ]
    texts = [{"name": key, "type": "string", "value": ""} for key in _TEXTS]
    return {
        "id": id, "name": name, "ctrl_deps": under, "inputs": inputs, "outputs": _NOTHING, "attrs": [*numbers, *texts],
    }  # fmt: skip


_CONSTANTS: Final[dict[str, tuple[Any, str]]] = {
    "": ("<None>", "None"), "True": (True, "Bool"), "False": (False, "Bool"),
}  # fmt: skip


def _operand(kind: str, concrete: str) -> tuple[Any, str]:
    """Return what is known of an operand, and its type: of a tensor that it is one, of others their value."""
    if kind == "TensorList":
        return "<TensorList>", "GenericList[Tensor]"
    if kind not in ("", "Scalar", "ScalarList"):
        return "<Tensor>", f"Tensor({shown_type(kind)})"
    if concrete in _CONSTANTS:
        return _CONSTANTS[concrete]
    try:
        value = json.loads(concrete)
    except ValueError:  # a device, a type, a list that is not written whole
        return concrete, "Device" if concrete.partition(":")[0] in ("cpu", "cuda", "meta") else "String"
    if isinstance(value, list):
        return value, f"GenericList[{','.join(['Int'] * len(value))}]"
    return value, "Int" if isinstance(value, int) else "Double"
