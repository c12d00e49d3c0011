"""Texts of masked tensors, in PyTorch's form: rows within rows, and ``--`` where the mask is false."""

from __future__ import annotations

from typing import Any, Final

_LEAST_WIDTH: Final = 8
_INDENT: Final = "  "


def _shown(value: Any) -> str:
    return f"{value:8.4f}" if isinstance(value, float) else str(value)


def _row(data: list[Any], mask: list[bool]) -> str:
    known = [_shown(value) for value, is_known in zip(data, mask, strict=True) if is_known]
    hidden = "--".rjust(max([_LEAST_WIDTH, *map(len, known)]))
    left = iter(known)
    return f"[{', '.join([next(left) if is_known else hidden for is_known in mask])}]"


def _nested(data: Any, mask: Any, dims: int) -> str:
    if dims == 1:
        return _row(data, mask)
    parts = [_nested(inner, chosen, dims - 1) for inner, chosen in zip(data, mask, strict=True)]
    return "[\n" + ",\n".join(map(_indented, parts)) + "\n]"


def _indented(text: str) -> str:
    return "\n".join([_INDENT + line for line in text.split("\n")])


def text_of(data: Any, mask: Any, dims: int) -> str:
    """Return what stands for a masked tensor, given elements and mask as lists."""
    if not dims:
        return f"MaskedTensor({_shown(data) if mask else '--'}, {mask})"
    return f"MaskedTensor(\n{_indented(_nested(data, mask, dims))}\n)"
