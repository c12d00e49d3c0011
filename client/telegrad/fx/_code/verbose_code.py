"""What readable code says beside its statements: where a node comes from, and what its result is like."""

from __future__ import annotations

import re
from typing import Any, Final

from telegrad._tensor.tensor import Tensor

from ..node import Node

_FRAME: Final = re.compile(r'^File "(.+)", line (\d+), in (.+)$')
ABBREVIATIONS: Final = {
    "bfloat16": "bf16", "float64": "f64", "float32": "f32", "float16": "f16", "complex32": "c32", "complex64": "c64",
    "complex128": "c128", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "bool": "b8", "uint8": "u8",
    "uint16": "u16", "uint32": "u32", "uint64": "u64",
}  # fmt: skip


def comment_of(node: Node) -> str:
    """Return a comment that says where the program made a node."""
    lines = (node.stack_trace or "").strip().split("\n")
    for place in range(len(lines) - 2, -1, -1):
        frame = _FRAME.match(lines[place].strip())
        if frame:
            file, line, name = frame.groups()
            return f"\n# File: {file}:{line} in {name}, code: {lines[place + 1].strip()}\n"
    return "\n# No stacktrace found for following nodes\n"


def type_of_result(node: Node, options: dict[str, Any]) -> str | None:
    """Return an annotation with type and shape of a node's result, if its metadata has them."""
    meta = node.meta
    result: Any = meta.get("val", meta.get("tensor_meta", meta.get("example_value")))
    if not (isinstance(result, Tensor) or hasattr(result, "requires_grad")):
        return None
    text = f"{ABBREVIATIONS[str(result.dtype).rpartition('.')[2]]}{_listed(meta.get('sizes', result.shape))}"
    if isinstance(result, Tensor):
        text += _listed(result.stride()) if options.get("include_stride") else ""
        text += str(result.device) if options.get("include_device") else ""
    return f': "{text}"'


def _listed(sizes: Any) -> str:
    return f"[{', '.join(map(str, sizes))}]"
