"""The types of tensors on GPUs."""

from __future__ import annotations

from telegrad._functions.tensor_types import TYPES

__all__ = [
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "ComplexDoubleTensor",
    "ComplexFloatTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
]

_types = TYPES["cuda"]
BFloat16Tensor = _types["BFloat16Tensor"]
BoolTensor = _types["BoolTensor"]
ByteTensor = _types["ByteTensor"]
CharTensor = _types["CharTensor"]
ComplexDoubleTensor = _types["ComplexDoubleTensor"]
ComplexFloatTensor = _types["ComplexFloatTensor"]
DoubleTensor = _types["DoubleTensor"]
FloatTensor = _types["FloatTensor"]
HalfTensor = _types["HalfTensor"]
IntTensor = _types["IntTensor"]
LongTensor = _types["LongTensor"]
ShortTensor = _types["ShortTensor"]
