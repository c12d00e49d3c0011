"""``torch.onnx`` and its modules: packages register symbols of their operators there; nothing is exported."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NoReturn, TypeVar

from telegrad.ops import aten
from telegrad_protocol.errors import NotSupportedError

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class TensorProtoDataType(IntEnum):
    """The numbers of types in ONNX."""

    UNDEFINED = 0
    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    INT32 = 6
    INT64 = 7
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11


class ONNXProgram:
    """What an export gives, for annotations."""


def export(*args: Any, **kwargs: Any) -> NoReturn:
    """Refuse: nothing is traced."""
    raise NotSupportedError(
        "onnx.export: telegrad exports no graphs; save a state_dict with torch.save and export where PyTorch is "
        "installed"
    )


dynamo_export = export


def is_in_onnx_export() -> bool:
    """Whether an export is running: it never is."""
    return False


def is_onnxrt_backend_supported() -> bool:
    """Whether ONNX Runtime can be a backend: it cannot."""
    return False


def parse_args(*descriptors: str) -> Callable[[Decorated], Decorated]:
    """Return a decorator that keeps the function as it is: nothing calls symbols."""
    return lambda function: function


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Callable[..., Any], opset_version: int) -> None:
    """Accept the symbol of an operator, which nothing asks for."""


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Accept that a symbol is no more."""


class OperatorExportTypes(IntEnum):
    """How an export would write operators."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


class TrainingMode(IntEnum):
    """In which mode an export would run a model."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


def shape_as_tensor(x: Any) -> Any:
    """Return a tensor's shape as a tensor of integers."""
    return aten._shape_as_tensor(x)


def reshape_from_tensor_shape(x: Any, shape: Any) -> Any:
    """Return a tensor in a shape that another tensor has the sizes of. One round trip."""
    return x.reshape(shape.tolist())
