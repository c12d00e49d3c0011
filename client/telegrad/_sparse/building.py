"""The constructors of sparse tensors: from indices and values, of which only the shapes are looked at by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from telegrad._functions import creation
from telegrad._functions.creation import as_tensor
from telegrad._session.thread_modes import thread
from telegrad._tensor.layouts import Layout, sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr
from telegrad._tensor.tensor import Tensor
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, NotSupportedError, ShapeError

from . import invariants
from .functions import run
from .tensor import BLOCKED, BY_ROWS, COMPRESSED, SparseTensor

Size = Sequence[int] | None


def _values_of(values: Any, dtype: DType | None, device: Any, requires_grad: bool) -> Tensor:
    """Return values as a tensor, a leaf where they are to require a gradient of their own."""
    made = as_tensor(values, dtype, device)
    if requires_grad:
        return made.detach().requires_grad_()
    if made.requires_grad:
        return run("view", made, made.shape) if thread.modes.records else made.detach()
    return made


def _indices_of(indices: Any, values: Tensor, *, keeps_int32: bool) -> Tensor:
    """Return indices as a tensor of integers where the values are."""
    made = as_tensor(indices, device=values.device)
    if made.dtype.category > dtypes.INTEGER or made.dtype is dtypes.bool_:
        if made.numel() and (keeps_int32 or made.is_complex()):
            raise ArgumentTypeError(f"indices must be integers, got {made._meta}")
        return made.to(dtypes.int64)
    return made if keeps_int32 and made.dtype is dtypes.int32 else made.to(dtypes.int64)


def _largest(given: Any, indices: Tensor) -> list[int]:
    """Return the largest index of each line, -1 where there are none; one round trip for what is not the program's."""
    if not indices.numel():
        return [-1] * int(indices.shape[0])
    if isinstance(given, Tensor):
        return [int(index) for index in indices.detach().amax(1).tolist()]
    return [int(index) for index in np.asarray(given).max(1)]


def _check_negative(given: Any) -> None:
    if isinstance(given, Tensor):
        return
    for dim, line in enumerate(np.asarray(given).reshape(len(given), -1) if len(given) else ()):
        if line.size and line.min() < 0:
            raise ShapeError(f"sparse_coo_tensor: found negative index {int(line.min())} for dim {dim}")


def sparse_coo_tensor(
    indices: Any = None, values: Any = None, size: Size = None, *, dtype: DType | None = None, device: Any = None,
    pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> SparseTensor:  # fmt: skip
    """Return a tensor with ``values`` at ``indices``: (sparse_dim, nnz) and (nnz, ...); others are zero.

    Values of the same indices add up. Without a size it is the smallest that has all indices, which waits for the
    server where these are a tensor. A size alone makes a tensor without stored elements. Indices are checked when they
    are used; ``check_invariants=True`` checks them at once, in one round trip.
    """
    if values is None and (size is None or indices is None):
        return empty_coo(indices if size is None else size, dtype=dtype, device=device, requires_grad=requires_grad)
    elements = _values_of(values, dtype, device, requires_grad)
    places = _indices_of(indices, elements, keeps_int32=False)
    if places.ndim != 2:
        raise ShapeError(f"sparse_coo_tensor: indices must be sparse_dim x nnz, but got: {tuple(places.shape)}")
    if not elements.ndim:
        elements = elements.expand(min(places.shape[1], 1))
    if not elements.ndim or elements.shape[0] != places.shape[1]:
        raise ShapeError(
            f"sparse_coo_tensor: indices and values must have same nnz, but got nnz from indices: {places.shape[1]}, "
            f"nnz from values: {elements.shape[0] if elements.ndim else 0}"
        )
    _check_negative(indices)
    if size is None:
        shape = (*[index + 1 for index in _largest(indices, places)], *elements.shape[1:])
    else:
        shape = tuple(int(length) for length in size)
        _check_coo_shape(shape, places, elements)
    made = SparseTensor(sparse_coo, (places, elements), shape, bool(is_coalesced))
    return invariants.checked(made, check_invariants)


def _check_coo_shape(shape: tuple[int, ...], indices: Tensor, values: Tensor) -> None:
    sparse, dense = int(indices.shape[0]), values.ndim - 1
    if any(length < 0 for length in shape):
        raise ShapeError(f"sparse_coo_tensor: a size must not be negative, got {shape}")
    if len(shape) != sparse + dense:
        raise ShapeError(
            f"sparse_coo_tensor: number of dimensions must be sparse_dim ({sparse}) + dense_dim ({dense}), but got "
            f"{len(shape)}"
        )
    if shape[sparse:] != tuple(values.shape[1:]):
        raise ShapeError(f"sparse_coo_tensor: values {values._meta} do not have the dense sizes {shape[sparse:]}")


def empty_coo(
    size: Size, *, dense_dim: int = 0, dtype: DType | None = None, device: Any = None, requires_grad: bool = False
) -> SparseTensor:
    """Return a coordinate tensor without stored elements."""
    shape = tuple(int(length) for length in size or ())
    sparse = len(shape) - dense_dim
    values = run("empty", (0, *shape[sparse:]), dtype=dtype or dtypes.get_default_dtype(), device=device)
    indices = run("empty", (sparse, 0), dtype=dtypes.int64, device=values.device)
    made = SparseTensor(sparse_coo, (indices, values), shape, is_coalesced=True)
    return made.requires_grad_() if requires_grad else made


def empty_compressed(
    kind: Layout, size: Sequence[int], *, dtype: DType | None = None, device: Any = None, requires_grad: bool = False
) -> SparseTensor:
    """Return a tensor of a compressed layout without stored elements."""
    if kind in BLOCKED:
        raise ArgumentError(f"a {kind.name} tensor needs blocks; use sparse_compressed_tensor()")
    *batch, rows, columns = size
    lines = rows if kind in BY_ROWS else columns
    values = run("empty", (*batch, 0), dtype=dtype or dtypes.get_default_dtype(), device=device)
    options = {"dtype": dtypes.int64, "device": values.device}
    made = SparseTensor(
        kind, (run("zeros", (*batch, lines + 1), **options), run("empty", (*batch, 0), **options), values), size
    )
    return made.requires_grad_() if requires_grad else made


def sparse_compressed_tensor(
    compressed_indices: Any, plain_indices: Any, values: Any, size: Size = None, *, dtype: DType | None = None,
    layout: Layout | None = None, device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> SparseTensor:  # fmt: skip
    """Return a tensor of a compressed layout: where lines begin, the places in them, and values.

    Lines are rows in the layouts ``sparse_csr`` and ``sparse_bsr``, columns in ``sparse_csc`` and ``sparse_bsc``; the
    blocked layouts store matrices in place of elements. All may have batch dimensions in front.
    """
    if layout not in COMPRESSED:
        raise ArgumentError(f"sparse_compressed_tensor: expected a compressed sparse layout, got {layout}")
    elements = _values_of(values, dtype, device, requires_grad)
    compressed = _indices_of(compressed_indices, elements, keeps_int32=True)
    plain = _indices_of(plain_indices, elements, keeps_int32=True)
    invariants.check_compressed_shapes(layout, compressed, plain, elements)
    if size is None:
        shape = _inferred(layout, compressed, plain, plain_indices, elements)
    else:
        shape = tuple(int(length) for length in size)
    made = SparseTensor(layout, (compressed, plain, elements), shape)
    invariants.check_compressed_size(made)
    return invariants.checked(made, check_invariants)


def _inferred(layout: Layout, compressed: Tensor, plain: Tensor, given: Any, values: Tensor) -> tuple[int, ...]:
    """Return the smallest size that has all indices."""
    batch = compressed.ndim - 1
    blocks = tuple(values.shape[batch + 1 : batch + 3]) if layout in BLOCKED else (1, 1)
    lines = compressed.shape[-1] - 1
    if not plain.numel():
        across = 0
    elif isinstance(given, Tensor):
        across = int(plain.max().item()) + 1
    else:
        across = int(np.asarray(given).max()) + 1
    rows, columns = (lines, across) if layout in BY_ROWS else (across, lines)
    dense = values.shape[batch + (3 if layout in BLOCKED else 1) :]
    return (*compressed.shape[:-1], rows * blocks[0], columns * blocks[1], *dense)


def sparse_csr_tensor(
    crow_indices: Any, col_indices: Any, values: Any, size: Size = None, *, dtype: DType | None = None,
    device: Any = None, pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
) -> SparseTensor:  # fmt: skip
    """Return a tensor that stores rows: where they begin, the columns of the stored elements, and these."""
    return sparse_compressed_tensor(
        crow_indices, col_indices, values, size, dtype=dtype, layout=sparse_csr, device=device,
        requires_grad=requires_grad, check_invariants=check_invariants,
    )  # fmt: skip


def sparse_csc_tensor(
    ccol_indices: Any, row_indices: Any, values: Any, size: Size = None, *, dtype: DType | None = None,
    device: Any = None, pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
) -> SparseTensor:  # fmt: skip
    """Return a tensor that stores columns: where they begin, the rows of the stored elements, and these."""
    return sparse_compressed_tensor(
        ccol_indices, row_indices, values, size, dtype=dtype, layout=sparse_csc, device=device,
        requires_grad=requires_grad, check_invariants=check_invariants,
    )  # fmt: skip


def sparse_bsr_tensor(
    crow_indices: Any, col_indices: Any, values: Any, size: Size = None, *, dtype: DType | None = None,
    device: Any = None, pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
) -> SparseTensor:  # fmt: skip
    """Return a tensor that stores rows of blocks: where they begin, the columns of the stored blocks, and these."""
    return sparse_compressed_tensor(
        crow_indices, col_indices, values, size, dtype=dtype, layout=sparse_bsr, device=device,
        requires_grad=requires_grad, check_invariants=check_invariants,
    )  # fmt: skip


def sparse_bsc_tensor(
    ccol_indices: Any, row_indices: Any, values: Any, size: Size = None, *, dtype: DType | None = None,
    device: Any = None, pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
) -> SparseTensor:  # fmt: skip
    """Return a tensor that stores columns of blocks: where they begin, the rows of the stored blocks, and these."""
    return sparse_compressed_tensor(
        ccol_indices, row_indices, values, size, dtype=dtype, layout=sparse_bsc, device=device,
        requires_grad=requires_grad, check_invariants=check_invariants,
    )  # fmt: skip


def copied(data: SparseTensor, dtype: DType | None, device: Any, requires_grad: bool) -> SparseTensor:
    """Return a new leaf with a copy of a sparse tensor, as ``tensor(data)`` does."""
    parts = [creation.copied(part, None, device) for part in data._parts[:-1]]
    values = creation.copied(data.stored, dtype, device, requires_grad)
    return SparseTensor(data._kind, (*parts, values), data.shape, data._is_coalesced)


def created(public: str, args: tuple[Any, ...], options: dict[str, Any], layout: Layout) -> Tensor:
    """Return what a creation function makes in a sparse layout: only tensors without stored elements are made so."""
    if not isinstance(layout, Layout):
        raise ArgumentTypeError(f"{public}: layout must be one such as telegrad.sparse_coo, not {layout!r}")
    like = public.removesuffix("_like")
    if public.startswith("signal_windows_"):
        raise ArgumentError(f"{public}: the window is implemented for strided tensors only, got: {layout}")
    if like not in ("zeros", "empty"):
        raise NotSupportedError(f"{public}: not supported with layout={layout.name}; use to_sparse(layout=...)")
    dtype, device = options.get("dtype"), options.get("device")
    if like != public:
        source = args[0] if args else options["input"]
        size, dtype, device = source.shape, dtype or source.dtype, source.device if device is None else device
    else:
        given = args or (options["size"],)
        size = given[0] if len(given) == 1 and not isinstance(given[0], int) else given
    if layout is sparse_coo:
        return empty_coo(size, dtype=dtype, device=device)
    return empty_compressed(layout, tuple(size), dtype=dtype, device=device)
