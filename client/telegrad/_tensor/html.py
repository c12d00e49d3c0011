"""The table that a notebook shows of a tensor: its first elements below a line that describes it.

Works on NumPy arrays that were already fetched; ``head_of`` says what to fetch. The text comes from ``formatting``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from telegrad_protocol.dtypes import DType

from .formatting import number_format

ROWS = 10
COLUMNS = 10
_DOTS = "…"
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def escape(text: str) -> str:
    """Return a text as HTML shows it; the module ``html`` would add a table of all entities to every import."""
    return text.translate(_ESCAPED)


def head_of(shape: tuple[int, ...]) -> tuple[slice, ...]:
    """Return which part of a tensor the table shows: the first rows and columns of its first matrix."""
    outer = [slice(0, 1)] * (len(shape) - 2)
    inner = [slice(0, ROWS), slice(0, COLUMNS)]
    return (*outer, *inner[2 - min(len(shape), 2) :])


def format_html(
    head: np.ndarray[Any, Any], *, kind: str, shape: tuple[int, ...], dtype: DType, device: str, notes: Iterable[str]
) -> str:
    """Return the HTML of a tensor of ``shape`` whose elements at ``head_of(shape)`` are ``head``.

    ``kind`` is the name of its class, ``notes`` is what else there is to say, such as ``requires_grad``.
    """
    size = " × ".join(map(str, shape)) or "scalar"
    about = " · ".join([f"<b>{escape(kind)}</b> {size}", dtype.name, escape(device), *map(escape, notes)])
    parts = [f"<div>{about}</div>"]
    if len(shape) > 2 and head.size:
        parts.append(f"<div>[{'0, ' * (len(shape) - 2)}:, :]</div>")
    if head.size:
        parts.append(_table(head, shape, dtype))
    return "<div>" + "".join(parts) + "</div>"


def _table(head: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: DType) -> str:
    write = number_format(head, dtype)
    matrix = head.reshape(head.shape[-2:]) if head.ndim > 1 else head.reshape(1, -1)
    rows, columns = (shape if len(shape) > 1 else (1, *(shape or (1,))))[-2:]
    cells = [[escape(write(value).strip()) for value in row] for row in matrix.tolist()]
    names = [str(row) for row in range(len(cells))] if len(shape) > 1 else [""]
    header = list(map(str, range(matrix.shape[1]))) if shape else []
    if columns > matrix.shape[1]:
        header.append(_DOTS)
        cells = [[*row, _DOTS] for row in cells]
    if rows > len(cells):
        names.append(_DOTS)
        cells.append([_DOTS] * len(cells[0]))
    head_row = f"<thead><tr><th></th>{_cells('th', header)}</tr></thead>" if header else ""
    body = "".join([f"<tr><th>{name}</th>{_cells('td', row)}</tr>" for name, row in zip(names, cells, strict=True)])
    return f'<table class="dataframe">{head_row}<tbody>{body}</tbody></table>'


def _cells(tag: str, texts: list[str]) -> str:
    return "".join([f"<{tag}>{text}</{tag}>" for text in texts])
