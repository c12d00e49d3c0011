"""Copies from one GPU to another: cast and laid out as the target is where the source lies, then moved as bytes.

The host waits for neither GPU; see ``CudaBackend.send``.
"""

from __future__ import annotations

from typing import Any

from server.engine import context, keys
from server.engine.cuda.runtime.launch import nothing, pointer
from server.engine.operators import Request
from server.engine.registry import transfers
from server.engine.value import Backend, Launch, Value
from telegrad_protocol.layout import is_dense
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import creation, pointwise

from .copying import copying


@transfers(pointwise._to_copy, keys.CUDA)
def copy_to_device(request: Request) -> Launch | None:
    """A new tensor on this GPU."""
    move = _moving(request.backend, request.outs[0], request.args[0])
    return move and (lambda args, outs: move(args[0], outs[0]))


@transfers(creation.copy_, keys.CUDA)
def copy_over(request: Request) -> Launch | None:
    """Overwrite a tensor on this GPU."""
    target, source = request.args[:2]
    move = _moving(request.backend, target, source)
    return move and (lambda args, outs: move(args[1], args[0]))


def _moving(backend: Any, target: Meta, source: Meta) -> Any:
    """What moves one value into another, of these metas; None where the source is not on a GPU."""
    origin: Any = context.current.backends[source.device]
    if origin.key != keys.CUDA:
        return None
    if not target.numel:
        return nothing
    landed = target if is_dense(target.shape, target.strides) else target.like(strides=None)
    nbytes = landed.numel * landed.dtype.itemsize
    pack = _packing(origin, landed, source)
    unpack = None if landed is target else copying(backend, target, landed)

    def move(value: Value, result: Value) -> None:
        sent = value if pack is None else pack(value)
        received = result if unpack is None else backend.empty(landed)
        origin.send(backend, pointer(sent), pointer(received), nbytes)
        if unpack is not None:
            unpack((received,), (result,))

    return move


def _packing(origin: Backend, landed: Meta, source: Meta) -> Any:
    """What makes a copy on the source's GPU that can be moved as it is; None where the source itself can be."""
    if (source.dtype, source.shape, source.strides) == (landed.dtype, landed.shape, landed.strides):
        return None
    packed = Meta.of(landed.shape, landed.dtype, source.device, landed.strides)
    with origin.as_current():
        launch = origin.at_once(copying(origin, packed, source))

    def pack(value: Value) -> Value:
        result = origin.empty(packed)
        with origin.as_current():
            launch((value,), (result,))
        return result

    return pack
