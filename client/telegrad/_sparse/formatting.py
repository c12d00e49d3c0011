"""The text of a sparse tensor, as PyTorch prints it: its parts, its size, and how many elements it stores."""

from __future__ import annotations

from telegrad._functions.repr import contents
from telegrad._session.grad_mode import no_grad
from telegrad._tensor.formatting import join_suffixes, name_of
from telegrad._tensor.layouts import sparse_coo
from telegrad._tensor.tensor import Tensor
from telegrad_protocol import dtypes

from .tensor import BY_ROWS, SparseTensor

_INDENT = " " * 7


def text(tensor: SparseTensor) -> str:
    """Return the text; the parts are read from the server."""
    is_coo = tensor._kind is sparse_coo
    names = ("indices",) if is_coo else _INDEX_NAMES[tensor._kind in BY_ROWS]
    with no_grad():
        shown = [_part(name, part) for name, part in zip((*names, "values"), tensor._parts, strict=True)]
    # Of coordinates, the size begins a new line; of other layouts it follows the values where there is room.
    parts = f",\n{_INDENT}".join([*shown, ""] if is_coo else shown)
    suffixes = [] if is_coo else [f"size={tuple(tensor.shape)}"]
    if is_coo:
        parts += f"size={tuple(tensor.shape)}"
    suffixes.append(f"nnz={tensor.count}")
    if tensor.device.type != "cpu":
        suffixes.append(f"device='{tensor.device}'")
    default = dtypes.get_default_dtype()
    if tensor.dtype not in (default, default.to_complex(), dtypes.int64, dtypes.bool_) or (
        not tensor.stored.numel() and tensor.dtype is not default
    ):
        suffixes.append(f"dtype={name_of(tensor.dtype)}")
    suffixes.append(f"layout={name_of(tensor._kind)}")
    if tensor.grad_fn is not None:
        suffixes.append(f"grad_fn=<{type(tensor.grad_fn).__name__}>")
    elif tensor.requires_grad:
        suffixes.append("requires_grad=True")
    whole = join_suffixes(f"tensor({parts}", suffixes)
    return f"Parameter containing:\n{whole}" if getattr(tensor, "_is_param", False) else whole


_INDEX_NAMES = {True: ("crow_indices", "col_indices"), False: ("ccol_indices", "row_indices")}


def _part(name: str, part: Tensor) -> str:
    prefix = f"{name}=tensor("
    inner = contents(part.detach(), len(_INDENT) + len(prefix))
    size = f", size={tuple(part.shape)}" if not part.numel() else ""
    return f"{prefix}{inner}{size})"
