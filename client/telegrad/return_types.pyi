"""The named tuples that operations return; written by docs/generate.py."""

from __future__ import annotations

from typing import Any, NamedTuple
from telegrad._tensor.tensor import Tensor

TYPES: dict[str, Any]
class max(NamedTuple):
    values: Tensor
    indices: Tensor
class min(NamedTuple):
    values: Tensor
    indices: Tensor
class aminmax(NamedTuple):
    min: Tensor
    max: Tensor
class var_mean(NamedTuple):
    var: Tensor
    mean: Tensor
class std_mean(NamedTuple):
    std: Tensor
    mean: Tensor
class cummax(NamedTuple):
    values: Tensor
    indices: Tensor
class cummin(NamedTuple):
    values: Tensor
    indices: Tensor
class sort(NamedTuple):
    values: Tensor
    indices: Tensor
class topk(NamedTuple):
    values: Tensor
    indices: Tensor
class kthvalue(NamedTuple):
    values: Tensor
    indices: Tensor
class median(NamedTuple):
    values: Tensor
    indices: Tensor
class native_dropout(NamedTuple):
    output: Tensor
    mask: Tensor
