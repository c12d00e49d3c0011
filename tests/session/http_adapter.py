"""Operator tests over HTTP: an adapter, as ``tests/ops/adapters.py`` has them, that knows JSON and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.json_numbers import read_number
from telegrad_protocol.meta import CPU

from ..ops.adapters import CLIENT_OPTIONS, OURS_TO_TORCH, to_numpy
from .server import HttpSession

Step = dict[str, Any]


MANY_ELEMENTS = 500
"""Where operands have more, the results are not part of the answer, which has a limit, but read as raw bytes."""


class HttpTensor:
    """A tensor of the session; its methods are operations."""

    def __init__(self, adapter: HttpAdapter, id: int, shape: Sequence[int], described: dict[str, Any]) -> None:
        self._adapter = adapter
        self.id, self.shape, self.described = id, tuple(shape), described

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args: self._adapter.function(name)(self, *args)[0]

    def __add__(self, other: Any) -> Any:
        return self.add(other)

    def __mul__(self, other: Any) -> Any:
        return self.mul(other)


class HttpAdapter:
    """Calls operations with ``POST /v1/sessions/{id}/ops``: the operands, the call and its values in one request."""

    device = CPU

    def __init__(self, session: HttpSession) -> None:
        self._session = session
        self._steps: list[Step] = []
        self._elements = self._last_id = 0

    def tensor(self, source: torch.Tensor, requires_grad: bool = False) -> HttpTensor:
        """Have a tensor of these elements and strides made by the next request."""
        flat = source.detach().resolve_conj().resolve_neg()
        length = flat.untyped_storage().nbytes() // flat.dtype.itemsize
        data = [_element(value) for value in torch.as_strided(flat, (length,), (1,), 0).tolist()]
        self._elements += length
        id = self._new_id()
        self._steps.append({"op": "tensor", "data": data, "dtype": _name_of(flat.dtype), "out": id})
        view = [{"tensor": id}, list(flat.shape), list(flat.stride()), flat.storage_offset()]
        id = self._new_id()
        self._steps.append({"op": "as_strided", "args": view, "out": id})
        return HttpTensor(self, id, flat.shape, {})

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def convert(self, value: Any) -> Any:
        """Other arguments as JSON has them."""
        if isinstance(value, torch.dtype):
            return _name_of(value)
        if isinstance(value, torch.device):
            return str(value)
        return _element(value)

    def function(self, name: str) -> Callable[..., list[HttpTensor]]:
        """Return what calls an operation and returns its results."""

        def call(*args: Any, **kwargs: Any) -> list[HttpTensor]:
            options = {key: _argument(value) for key, value in kwargs.items() if key not in CLIENT_OPTIONS}
            step = {"op": name, "args": _argument(list(args)), "kwargs": options}
            steps = [*self._steps, {**step, "values": self._elements <= MANY_ELEMENTS}]
            self._steps.clear()
            self._elements = 0
            return [HttpTensor(self, one["id"], one["shape"], one) for one in self._session.ops(*steps)[-1]]

        return call

    def numpy(self, tensor: HttpTensor) -> np.ndarray:
        """The elements, of the answer or of another one."""
        kind = to_numpy(torch.empty(0, dtype=OURS_TO_TORCH[self.dtype(tensor)])).dtype
        if "values" not in tensor.described:
            answer = self._session.call("GET", f"/tensors/{tensor.id}", headers={"Accept": "application/octet-stream"})
            return np.frombuffer(answer.content, kind).reshape(tensor.shape)
        numbers: list[Any] = []
        _flatten(tensor.described["values"], numbers)
        return np.array(numbers, kind).reshape(tensor.shape)

    def strides(self, tensor: HttpTensor) -> tuple[int, ...]:
        return tuple(tensor.described["strides"])

    def dtype(self, tensor: HttpTensor) -> DType:
        return dtypes.named(tensor.described["dtype"])


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _argument(value: Any) -> Any:
    """An argument with tensors named by their ids."""
    if isinstance(value, HttpTensor):
        return {"tensor": value.id}
    return [_argument(item) for item in value] if isinstance(value, (list, tuple)) else _element(value)


def _element(value: Any) -> Any:
    if isinstance(value, complex):
        return {"complex": [_element(value.real), _element(value.imag)]}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _flatten(values: Any, numbers: list[Any]) -> None:
    if isinstance(values, list):
        for value in values:
            _flatten(value, numbers)
    else:
        numbers.append(read_number(values))
