"""The text of a tensor, character for character the one that PyTorch prints.

Works on NumPy arrays that were already fetched: knows nothing of ``Tensor``, of the connection, or of gradients beyond
their names. ``edge_ranges`` says what to fetch when only the edges of a tensor are shown.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
EdgeRanges: TypeAlias = "tuple[tuple[tuple[int, int], ...], ...]"

# The text is compared with PyTorch's by people and by doctests, so types carry PyTorch's name in it.
_DTYPE_PREFIX = "torch."
_OPENING = "tensor("


@dataclass(frozen=True)
class PrintOptions:
    """How tensors are printed; the names and defaults are PyTorch's."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


_PROFILES: dict[str, dict[str, Any]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}
_options = PrintOptions()


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors are printed; what is not given keeps its value, except ``sci_mode``, which returns to automatic.

    ``profile`` is ``default``, ``short`` or ``full``, and the other arguments override it.
    """
    global _options
    if profile is not None and profile not in _PROFILES:
        raise ArgumentError(f"set_printoptions: profile must be one of {', '.join(_PROFILES)}, not {profile!r}")
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    changes = {name: value for name, value in given.items() if value is not None}
    for name, value in changes.items():
        if value < 0:
            raise ArgumentError(f"set_printoptions: {name} must not be negative, got {value}")
    _options = replace(_options, **{**_PROFILES.get(profile or "", {}), **changes, "sci_mode": sci_mode})


def get_printoptions() -> dict[str, Any]:
    """The current options, as a dictionary that can be passed to ``set_printoptions``."""
    return asdict(_options)


@contextlib.contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """Set print options inside a ``with`` block."""
    global _options
    before = _options
    set_printoptions(**options)
    try:
        yield
    finally:
        _options = before


def edge_ranges(shape: Sequence[int], options: PrintOptions | None = None) -> EdgeRanges | None:
    """Say which part of a tensor its text shows: per dimension the ``(start, stop)`` ranges to fetch and concatenate.

    ``None`` if the tensor is small enough to be shown, and therefore fetched, whole.
    """
    options = options or _options
    if math.prod(shape) <= options.threshold:
        return None
    return tuple(_ranges_of(size, options.edgeitems) for size in shape)


def _ranges_of(size: int, edgeitems: int) -> tuple[tuple[int, int], ...]:
    if size <= 2 * edgeitems:
        return ((0, size),)
    return (0, edgeitems), (size - edgeitems, size)


def take_edges(array: Array, plan: EdgeRanges) -> Array:
    """The part of a local ``array`` that ``plan`` names."""
    for dim, ranges in enumerate(plan):
        array = np.take(array, [i for start, stop in ranges for i in range(start, stop)], axis=dim)
    return array


def format_tensor(
    array: Array,
    *,
    dtype: DType,
    device: str,
    shape: tuple[int, ...],
    requires_grad: bool,
    grad_fn: str | None,
    is_parameter: bool = False,
    class_name: str | None = None,
    summarized: bool = False,
    default_dtype: DType | None = None,
    contents: str | None = None,
) -> str:
    """Format a tensor of ``shape`` as PyTorch's ``repr`` does.

    ``array`` holds its elements, or with ``summarized`` those that ``edge_ranges(shape)`` names; bfloat16 comes as
    float32. ``grad_fn`` is a node's name without brackets, such as ``AddBackward0``. ``class_name`` is that of
    a program's own class of tensors, and ``contents`` a text that it has for the elements.
    """
    opening = _OPENING if class_name is None else f"{class_name}("
    if contents is None:
        plan = edge_ranges(shape)
        if plan is not None and not summarized:
            array = take_edges(array, plan)
        contents = _contents(array, dtype, _Layout(_options, shape, plan is not None, len(opening)))
    suffixes = _suffixes(dtype, device, shape, requires_grad, grad_fn, default_dtype or dtypes.get_default_dtype())
    text = join_suffixes(opening + contents, suffixes, len(opening))
    if not is_parameter:
        return text
    return f"Parameter containing:\n{text if class_name is None else f'Parameter({text})'}"


def _suffixes(
    dtype: DType, device: str, shape: tuple[int, ...], requires_grad: bool, grad_fn: str | None, default: DType
) -> list[str]:
    empty = 0 in shape
    suffixes = []
    if device.partition(":")[0] != "cpu":
        suffixes.append(f"device='{device}'")
    if (empty and len(shape) != 1) or (not empty and not _options.edgeitems):
        suffixes.append(f"size={shape}")
    # An empty tensor has no elements that would tell its type, so only the default one goes without saying.
    if dtype is not default and (empty or dtype not in (_complex_of(default), dtypes.int64, dtypes.bool_)):
        suffixes.append(f"dtype={name_of(dtype)}")
    if grad_fn is not None:
        suffixes.append(f"grad_fn=<{grad_fn}>")
    elif requires_grad:
        suffixes.append("requires_grad=True")
    return suffixes


def format_elements(array: Array, *, dtype: DType, shape: tuple[int, ...], indent: int) -> str:
    """Format the elements alone, as they stand after ``indent`` characters; of a large tensor, those at the edges."""
    return _contents(array, dtype, _Layout(_options, shape, edge_ranges(shape) is not None, indent))


def name_of(kind: Any) -> str:
    """Return the name of a dtype or a layout as texts of tensors have it."""
    return f"{_DTYPE_PREFIX}{kind.name}"


def join_suffixes(text: str, suffixes: list[str], indent: int = len(_OPENING)) -> str:
    """Add what follows the elements, on new lines where it does not fit, and the closing parenthesis."""
    parts = [text]
    column = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if column + len(suffix) + 2 > _options.linewidth:
            parts.append(",\n" + " " * indent + suffix)
            column = indent + len(suffix)
        else:
            parts.append(", " + suffix)
            column += len(suffix) + 2
    return "".join(parts) + ")"


class _NumberFormat:
    """How all numbers of one tensor (or all its real, or imaginary, parts) are written, in one common width."""

    def __init__(self, values: Array, options: PrintOptions) -> None:
        self.precision = options.precision
        self.floating = values.dtype.kind == "f"
        self.integral = True
        self.scientific = False
        self.width = 1
        if self.floating:
            values = values[np.isfinite(values) & (values != 0)]
            if values.size:
                self._choose_notation(values, options.sci_mode)
        self.width = max((len(self._measured(value)) for value in values.ravel().tolist()), default=1)

    def _choose_notation(self, values: Array, sci_mode: bool | None) -> None:
        magnitudes = np.abs(values.astype(np.float64))
        low, high = float(magnitudes.min()), float(magnitudes.max())
        self.integral = bool((values == np.ceil(values)).all())
        self.scientific = sci_mode if sci_mode is not None else high / low > 1000.0 or high > 1.0e8 or low < 1.0e-4

    def _measured(self, value: Any) -> str:
        return self._write(value) if self.floating else str(value)

    def _write(self, value: float) -> str:
        if self.scientific:
            return f"{value:.{self.precision}e}"
        if self.integral:
            return f"{value:.0f}" + ("." if math.isfinite(value) else "")
        return f"{value:.{self.precision}f}"

    def __call__(self, value: Any) -> str:
        return self._measured(value).rjust(self.width)


class _ComplexFormat:
    """Writes ``real+imagj``, each part in its own format; only the real part is aligned to the right."""

    def __init__(self, values: Array, options: PrintOptions) -> None:
        self.real = _NumberFormat(values.real, options)
        self.imag = _NumberFormat(values.imag, options)
        self.width = self.real.width + self.imag.width + 1

    def __call__(self, value: complex) -> str:
        imag = self.imag(value.imag).lstrip() + "j"
        return self.real(value.real) + ("" if imag[0] in "+-" else "+") + imag


@dataclass(frozen=True)
class _Layout:
    """Where lines break and what is left out, for a tensor of ``shape``."""

    options: PrintOptions
    shape: tuple[int, ...]
    summarize: bool
    indent: int = len(_OPENING)

    def elides(self, dim: int) -> bool:
        return self.summarize and self.shape[dim] > 2 * self.options.edgeitems

    def with_dots(self, items: list[str], dim: int, dots: str) -> list[str]:
        if not self.elides(dim):
            return items
        return [*items[: self.options.edgeitems], dots, *items[self.options.edgeitems :]]


def _contents(array: Array, dtype: DType, layout: _Layout) -> str:
    if 0 in layout.shape:
        return "[]"
    if not layout.options.edgeitems and layout.summarize and layout.shape:
        return "[...]"
    return _nested(array.tolist(), 0, layout, number_format(array, dtype))


def number_format(array: Array, dtype: DType) -> _NumberFormat | _ComplexFormat:
    """Return the function that writes elements of ``array``, all in one notation and width."""
    return (_ComplexFormat if dtype.is_complex else _NumberFormat)(array, _options)


def _nested(values: Any, dim: int, layout: _Layout, formatter: _NumberFormat | _ComplexFormat) -> str:
    remaining = len(layout.shape) - dim
    if remaining == 0:
        return formatter(values)
    if remaining == 1:
        return _vector([formatter(value) for value in values], dim, layout, formatter.width)
    rows = [_nested(row, dim + 1, layout, formatter) for row in values]
    separator = "," + "\n" * (remaining - 1) + " " * (layout.indent + dim + 1)
    return "[" + separator.join(layout.with_dots(rows, dim, "...")) + "]"


def _vector(items: list[str], dim: int, layout: _Layout, width: int) -> str:
    indent = layout.indent + dim
    per_line = max(1, (layout.options.linewidth - indent) // (width + 2))
    items = layout.with_dots(items, dim, " ...")
    lines = [", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _complex_of(default: DType) -> DType:
    """The complex type that goes without saying, which is never that of halves."""
    return dtypes.complex128 if default is dtypes.float64 else dtypes.complex64
