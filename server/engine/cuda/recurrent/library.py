"""cuDNN's interface for recurrent layers, which its Python front end does not have: calls into the library itself.

The library is the one that the front end has loaded, and handles are the front end's. Knows nothing of operations.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from server.engine.cuda.runtime import cudnn_graph

CELLS = {"RNN_RELU": 0, "RNN_TANH": 1, "LSTM": 2, "GRU": 3}
TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}
FLOAT = 0
STANDARD, PERSIST_STATIC, PERSIST_STATIC_SMALL = 0, 1, 3
NO_BIAS, DOUBLE_BIAS = 0, 2
DEFAULT_MATH, TENSOR_OP_MATH, FMA_MATH = 0, 1, 3
_UNPACKED, _PACKED = 0, 1
_PADDED = 1
INFERENCE, TRAINING = 0, 1
ADD_GRADIENTS = 0
_LINEAR_INPUT = 0
_SONAME = "libcudnn.so.9"


class CudnnError(RuntimeError):
    """cuDNN refused a call."""


@cache
def _library() -> Any:
    """The loaded library; None where there is none."""
    if not cudnn_graph.is_available():
        return None
    try:
        return ctypes.CDLL(_SONAME)
    except OSError:
        return None


def is_available() -> bool:
    """Whether recurrent layers can be computed here at all."""
    return _library() is not None


def call(name: str, *arguments: Any) -> None:
    """Call a function of cuDNN; raise ``CudnnError`` if it fails.

    Whole numbers are C's ``int``; sizes, addresses and handles are given as objects of ``ctypes``.
    """
    _check(name, getattr(_library(), name)(*arguments))


@cache
def function(name: str, parameters: str) -> Callable[..., None]:
    """A function of cuDNN that takes plain integers: ``p`` an address, ``s`` a size, ``i`` an ``int``."""
    kinds = {"p": ctypes.c_void_p, "s": ctypes.c_size_t, "i": ctypes.c_int}
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, *[kinds[kind] for kind in parameters])
    entry = prototype((name, _library()))

    def run(*arguments: int) -> None:
        status = entry(*arguments)
        if status:
            _check(name, status)

    return run


def _check(name: str, status: int) -> None:
    if status:
        library = _library()
        library.cudnnGetErrorString.restype = ctypes.c_char_p
        text = library.cudnnGetErrorString(status)
        raise CudnnError(f"{name}: {text.decode() if text else status}")


class Descriptor:
    """One of cuDNN's descriptors, which is destroyed with this object."""

    __slots__ = ("_kind", "address")

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.address = ctypes.c_void_p()
        call(f"cudnnCreate{kind}Descriptor", ctypes.byref(self.address))

    def __del__(self, call: Any = call) -> None:
        if self.address:
            call(f"cudnnDestroy{self._kind}Descriptor", self.address)


def tensor(dtype: int, *shape: int) -> Descriptor:
    """The descriptor of a row-major tensor."""
    made = Descriptor("Tensor")
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    integers = ctypes.c_int * len(shape)
    call("cudnnSetTensorNdDescriptor", made.address, dtype, len(shape), integers(*shape), integers(*strides))
    return made


def sequences(dtype: int, lengths: list[int], width: int) -> Descriptor:
    """The descriptor of sequences: all first elements, then all second ones, and so on.

    Sequences of one length lie alike packed and not; the library is quicker with what it takes for unpacked.
    """
    made = Descriptor("RNNData")
    layout = _UNPACKED if len(set(lengths)) == 1 else _PACKED
    integers = ctypes.c_int * len(lengths)
    call(
        "cudnnSetRNNDataDescriptor", made.address, dtype, layout, max(lengths), len(lengths), width,
        integers(*lengths), None,
    )  # fmt: skip
    return made


def no_dropout(handle: Any) -> Descriptor:
    """The descriptor of a dropout that drops nothing."""
    made = Descriptor("Dropout")
    call(
        "cudnnSetDropoutDescriptor", made.address, handle, ctypes.c_float(0.0), None, ctypes.c_size_t(0),
        ctypes.c_ulonglong(0),
    )  # fmt: skip
    return made


def layers(
    mode: str, dtype: int, math: int, algorithm: int, features: int, hidden: int, outputs: int, num_layers: int,
    bidirectional: bool, has_biases: bool, is_packed: bool, dropout: Descriptor,
) -> Descriptor:  # fmt: skip
    """The descriptor of a stack of layers; half precision is computed in float32."""
    made = Descriptor("RNN")
    precision = TYPES["float64"] if dtype == TYPES["float64"] else FLOAT
    call(
        "cudnnSetRNNDescriptor_v8", made.address, algorithm, CELLS[mode], DOUBLE_BIAS if has_biases else NO_BIAS,
        int(bidirectional), _LINEAR_INPUT, dtype, precision, math, features, hidden, outputs, num_layers,
        dropout.address, 0 if is_packed else _PADDED,
    )  # fmt: skip
    return made


def temporary_sizes(handle: Any, layers: Descriptor, mode: int, data: Descriptor) -> tuple[int, int]:
    """Bytes of workspace, and of what the backward pass reads."""
    work, reserve = ctypes.c_size_t(), ctypes.c_size_t()
    call(
        "cudnnGetRNNTempSpaceSizes", handle, layers.address, mode, data.address, ctypes.byref(work),
        ctypes.byref(reserve),
    )  # fmt: skip
    return work.value, reserve.value


def weight_bytes(handle: Any, layers: Descriptor) -> int:
    """Bytes of all weights."""
    size = ctypes.c_size_t()
    call("cudnnGetRNNWeightSpaceSize", handle, layers.address, ctypes.byref(size))
    return size.value


def weight_places(handle: Any, layers: Descriptor, pseudo_layer: int, number: int, nbytes: int) -> tuple[int, int]:
    """Where a matrix and its bias begin among all weights, in bytes; -1 for what there is not."""
    base = 1 << 20  # no address of anything: only differences are looked at
    matrix, bias = tensor(FLOAT, 1, 1, 1), tensor(FLOAT, 1, 1, 1)
    at_matrix, at_bias = ctypes.c_void_p(), ctypes.c_void_p()
    call(
        "cudnnGetRNNWeightParams", handle, layers.address, pseudo_layer, ctypes.c_size_t(nbytes), ctypes.c_void_p(base),
        number, matrix.address, ctypes.byref(at_matrix), bias.address, ctypes.byref(at_bias),
    )  # fmt: skip
    first, second = ((place.value or base - 1) - base for place in (at_matrix, at_bias))
    return first, second
