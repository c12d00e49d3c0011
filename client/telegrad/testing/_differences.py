"""Differences of two tensors or two numbers, in words."""

from __future__ import annotations

import cmath
from typing import Any, Final, NamedTuple

import numpy as np

from telegrad_protocol.dtypes import int64, promote_types

from .._tensor.layouts import sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr
from .._tensor.tensor import Tensor

_TOLERANCES: Final = {
    "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "complex32": (1e-3, 1e-5),
    "float32": (1.3e-6, 1e-5), "complex64": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7), "complex128": (1e-7, 1e-7),
}  # fmt: skip
"""Relative and absolute tolerance by dtype; other dtypes must be equal."""
_BY_ROWS: Final = ("crow_indices", "col_indices", "values")
_BY_COLUMNS: Final = ("ccol_indices", "row_indices", "values")
_PARTS: Final = {
    sparse_coo: ("_indices", "_values"), sparse_csr: _BY_ROWS, sparse_bsr: _BY_ROWS, sparse_csc: _BY_COLUMNS,
    sparse_bsc: _BY_COLUMNS,
}  # fmt: skip
"""The parts of sparse tensors, the values last."""


class Rules(NamedTuple):
    tolerance: tuple[float, float] | None
    equal_nan: bool
    check_device: bool
    check_dtype: bool
    check_stride: bool
    check_layout: bool

    def tolerances(self, *dtypes: str) -> tuple[float, float]:
        """Return the relative and absolute tolerance: what was asked for, else the largest of the dtypes'."""
        if self.tolerance is not None:
            return self.tolerance
        relative, absolute = zip(*(_TOLERANCES.get(dtype, (0.0, 0.0)) for dtype in dtypes), strict=True)
        return max(relative), max(absolute)


def difference_of_tensors(actual: Tensor, expected: Tensor, rules: Rules) -> str:
    attributes = {
        "device": rules.check_device, "dtype": rules.check_dtype, "shape": True, "layout": rules.check_layout,
    }  # fmt: skip
    for name, wanted in attributes.items():
        ours, theirs = getattr(actual, name), getattr(expected, name)
        if wanted and ours != theirs:
            return f"The values for attribute '{name}' do not match: {ours} != {theirs}."
    if actual.layout is not expected.layout:
        actual, expected = actual.to_dense(), expected.to_dense()
    elif actual.layout in _PARTS:
        return _difference_of_sparse(actual, expected, rules)
    return _difference_of_dense(actual, expected, rules, "Tensor-likes")


def _difference_of_sparse(actual: Any, expected: Any, rules: Rules) -> str:
    """Compare what two tensors of one sparse layout store, part by part, the values with a tolerance."""
    name = f"Sparse {actual.layout.name.removeprefix('sparse_').upper()}"
    counts = actual._nnz(), expected._nnz()
    if counts[0] != counts[1]:
        what = f"The number of specified values in {name.replace('Sparse', 'sparse')} tensors"
        return f"{what} does not match: {counts[0]} != {counts[1]}"
    *indices, values = _PARTS[actual.layout]
    exact = rules._replace(tolerance=(0.0, 0.0), check_dtype=False, equal_nan=False)
    pairs = [(part, getattr(actual, part)(), getattr(expected, part)()) for part in (*indices, values)]
    checks = [exact] * len(indices) + [rules]
    texts = (
        _difference_of_dense(ours, theirs, rule, f"{name} {part.removeprefix('_')}")
        for rule, (part, ours, theirs) in zip(checks, pairs, strict=True)
    )
    return next(filter(None, texts), "")


def _difference_of_dense(actual: Tensor, expected: Tensor, rules: Rules, what: str) -> str:
    if rules.check_stride and actual.stride() != expected.stride():
        return f"The values for attribute 'stride()' do not match: {actual.stride()} != {expected.stride()}."
    relative, absolute = rules.tolerances(actual.dtype.name, expected.dtype.name)
    actual, expected = actual.detach(), expected.detach()
    if actual.device != expected.device:
        actual, expected = actual.cpu(), expected.cpu()
    if actual.device.type == "meta" or actual.numel() == 0:
        return ""
    if actual.dtype != expected.dtype:
        common = promote_types(actual.dtype, expected.dtype)
        actual, expected = actual.to(common), expected.to(common)
    exact = relative == absolute == 0 and not rules.equal_nan
    close = actual == expected if exact else actual.isclose(expected, relative, absolute, rules.equal_nan)
    return "" if bool(close.all()) else _report(actual, expected, close, (relative, absolute), what)


def _report(actual: Tensor, expected: Tensor, close: Tensor, tolerances: tuple[float, float], what: str) -> str:
    """Return how many elements differ, by how much, and where by most."""
    if _is_exact(actual):
        actual, expected = actual.to(int64), expected.to(int64)
    count, exact = int((~close).sum()), tolerances == (0, 0)
    absolute = (actual - expected).abs()
    relative = absolute / expected.abs()
    limits = ["", ""] if exact else [f" (up to {limit} allowed)" for limit in tolerances]
    if actual.dim() == 0:
        return _scalars_differ(expected.item(), actual.item(), absolute.item(), relative.item(), limits)
    lines = [f"{what} are not {'equal' if exact else 'close'}!", ""]
    lines += [f"Mismatched elements: {count} / {close.numel()} ({count / close.numel():.1%})"]
    for name, values, limit in zip(("absolute", "relative"), (absolute, relative), reversed(limits), strict=True):
        far = values.masked_fill(close, 0).flatten()
        place = int(far.argmax())
        index = tuple(int(i) for i in np.unravel_index(place, values.shape))
        lines.append(f"Greatest {name} difference: {far[place].item()} at index {index}{limit}")
    return "\n".join(lines)


def _is_exact(tensor: Tensor) -> bool:
    return not (tensor.dtype.is_floating_point or tensor.dtype.is_complex)


def difference_of_numbers(actual: complex, expected: complex, rules: Rules) -> str:
    relative, absolute = rules.tolerances(
        *({bool: "bool", int: "int64", float: "float64"}.get(type(x), "complex128") for x in (actual, expected))
    )
    if isinstance(actual, bool) and isinstance(expected, bool):
        return "" if actual is expected else f"Booleans mismatch: {actual} is not {expected}"
    difference = abs(actual - expected)
    both_nan = actual != actual and expected != expected
    if (
        actual == expected
        or (rules.equal_nan and both_nan)
        or difference <= absolute + relative * abs(expected) < cmath.inf
    ):
        return ""
    limits = ["", ""] if relative == absolute == 0 else [f" (up to {limit} allowed)" for limit in (relative, absolute)]
    ratio = difference / abs(expected) if expected else cmath.inf
    return _scalars_differ(expected, actual, difference, ratio, limits)


def _scalars_differ(expected: complex, actual: complex, absolute: float, relative: float, limits: list[str]) -> str:
    kind = "close" if limits[0] else "equal"
    return (
        f"Scalars are not {kind}!\n\nExpected {expected} but got {actual}.\n"
        f"Absolute difference: {absolute}{limits[1]}\nRelative difference: {relative}{limits[0]}"
    )
