"""A program as readable text: the Python that would compute it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from telegrad_protocol.exported.checking import operation_of
from telegrad_protocol.exported.description import ProgramDescription, Step, TensorType, formula_of
from telegrad_protocol.ops.params import Param

_SHORT = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32",
    "int16": "i16", "int8": "i8", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool": "b8",
    "complex64": "c64", "complex128": "c128", "complex32": "c32",
}  # fmt: skip


def code_of(program: ProgramDescription, names: Mapping[int, str]) -> str:
    """Return the text of a function that does what the program does."""
    given = [f"{names[item.value]}: {_shown(item)}" for item in program.sources]
    lines = [f"def forward(self, {', '.join(given)}):"]
    line = 0
    for step in program.steps:
        if step.line != line:
            line = step.line
            if program.lines[line]:
                lines += ["", f"    # {program.lines[line]}"]
        text = _step(step, names)
        lines += ["    with torch.no_grad():", f"        {text}"] if step.without_gradient else [f"    {text}"]
    returned = ", ".join([names[output.value] for output in program.outputs])
    lines.append(f"    return ({returned}{',' if len(program.outputs) == 1 else ''})")
    return "\n".join(lines)


def _shown(tensor: TensorType) -> str:
    return f'"{_SHORT.get(tensor.dtype, tensor.dtype)}[{", ".join(map(str, tensor.shape))}]"'


def _step(step: Step, names: Mapping[int, str]) -> str:
    op = operation_of(step)
    parts: list[str] = []
    for position, param in enumerate(op.params):
        if param.name in step.args:
            text = _argument(param, step.args[param.name], names)
            in_order = len(parts) == position and position < op.positional
            parts.append(text if in_order else f"{param.name}={text}")
    call = f"{op.public}({', '.join(parts)})"
    outs = [names[out] for out in step.outs]
    if len(outs) == 1:
        typed = f": {_shown(step.results[0])}" if step.results else ""
        return f"{outs[0]}{typed} = {call}"
    return f"{', '.join(outs)} = {call}" if outs else call


def _argument(param: Param, item: Any, names: Mapping[int, str]) -> str:
    if param.kind.holds_tensors and not isinstance(item, list):
        return "None" if item is None else names[item]
    if param.kind.name.startswith("tensors"):
        return f"[{', '.join(['None' if number is None else names[number] for number in item])}]"
    return _value(item[0] if param.kind.holds_tensors and len(item) == 1 else item, param.kind.name)


def _value(item: Any, kind: str) -> str:
    if isinstance(item, dict):
        return repr(float(item["float"])) if "float" in item else str(formula_of(item))
    if isinstance(item, (list, tuple)):
        return f"[{', '.join([_value(part, kind) for part in item])}]"
    if hasattr(item, "sum") and hasattr(item, "over"):
        return str(item)
    return str(item) if kind.startswith("dtype") else repr(item)
