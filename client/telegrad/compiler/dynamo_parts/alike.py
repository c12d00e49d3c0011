"""``torch._dynamo.utils.same``: whether two results are alike, as tests of compiled functions ask."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from telegrad._functions.creation import allclose
from telegrad._tensor.tensor import Tensor


def same(
    ref: Any, res: Any, fp64_ref: Any = None, cos_similarity: bool = False, tol: float = 1e-4, equal_nan: bool = False,
    exact_dtype: bool = True, relax_numpy_equality: bool = False, ignore_non_fp: bool = False, **options: Any,
) -> bool:  # fmt: skip
    """Tell whether two results are alike: tensors within ``tol``, in lists, tuples, sets and dicts, other values equal.

    With ``cos_similarity`` tensors need only have the same direction, to 1 %. ``fp64_ref`` and further options, which
    say in PyTorch how to judge a model in half precision, change nothing. Raises AssertionError where one result is a
    list or a tensor and the other is not, and RuntimeError for values that are not compared.
    """

    def alike(ours: Any, theirs: Any) -> bool:
        return same(
            ours, theirs, None, cos_similarity, tol, equal_nan, exact_dtype, relax_numpy_equality, ignore_non_fp
        )

    if isinstance(ref, (set, frozenset)):
        return isinstance(res, (set, frozenset)) and ref == res
    if isinstance(ref, (list, tuple)):
        _require(isinstance(res, (list, tuple)), ref, res)
        return len(ref) == len(res) and all([alike(ours, theirs) for ours, theirs in zip(ref, res)])
    if isinstance(ref, dict):
        return isinstance(res, dict) and ref.keys() == res.keys() and all([alike(ref[key], res[key]) for key in ref])
    if isinstance(ref, Tensor):
        _require(isinstance(res, Tensor), ref, res)
        return _are_close(ref, res, tol, equal_nan, exact_dtype, cos_similarity, ignore_non_fp)
    return _are_equal(ref, res, tol, relax_numpy_equality, alike)


def _require(holds: bool, ref: Any, res: Any) -> None:
    if not holds:
        raise AssertionError(f"type mismatch {type(ref)} {type(res)}")


def _are_close(
    ref: Tensor, res: Tensor, tol: float, equal_nan: bool, exact_dtype: bool, by_direction: bool, ignores: bool
) -> bool:  # fmt: skip
    if ref.is_sparse:
        ref, res = ref.to_dense(), res.to_dense()
    if exact_dtype and ref.dtype is not res.dtype:
        return False
    is_real = ref.dtype.is_floating_point or ref.dtype.is_complex
    if not is_real:
        return ignores or bool((ref == res.to(ref.dtype)).all()) if ref.shape == res.shape else False
    if by_direction:
        a, b = ref.flatten().double(), res.flatten().double()
        return bool((a @ b) >= 0.99 * (a.norm() * b.norm()))
    return bool(allclose(ref, res.to(ref.dtype), rtol=tol, atol=tol, equal_nan=equal_nan))


def _are_equal(ref: Any, res: Any, tol: float, relaxes: bool, alike: Any) -> bool:
    """Compare what is no tensor and holds none, but for objects whose attributes do."""
    if isinstance(ref, float):
        return math.isclose(ref, res, rel_tol=tol, abs_tol=tol) or (ref != ref and res != res)
    if isinstance(ref, (np.ndarray, np.generic)):
        is_type = relaxes or type(ref) is type(res)
        return is_type and bool(np.allclose(ref, res, rtol=tol, atol=tol, equal_nan=True))
    attributes = getattr(ref, "__dict__", None)
    if attributes and not isinstance(ref, type) and not callable(ref):
        return type(ref) is type(res) and all([alike(attributes[key], getattr(res, key)) for key in attributes])
    return bool(ref == res)
