"""Copies from one GPU to another, in the order of both; the host waits for neither. See ``CudaBackend.send``.

What lies in memory as the target does is moved as bytes. Anything else is read, cast and written by one kernel where
the GPUs can access each other. Where they cannot, it is packed on the source's GPU, moved, and unpacked on the
target's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from server.engine import context, keys
from server.engine.cuda.runtime.launch import pointer
from server.engine.operators import Request
from server.engine.registry import transfers
from server.engine.value import Launch, Value
from telegrad_protocol.layout import is_dense
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import creation, pointwise

from .copying import copying

Move: TypeAlias = Callable[[Value, Value], None]
"""Moves a value of one GPU into a value of another."""


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


def _moving(backend: Any, target: Meta, source: Meta) -> Move | None:
    """What moves one value into another, of these metas; None where the source is not on a GPU."""
    origin: Any = context.current.backends[source.device]
    if origin.key != keys.CUDA:
        return None
    if not target.numel:
        return lambda value, result: None
    if is_dense(target.shape, target.strides) and _lies_as(source, target):
        return _moving_bytes(origin, backend, target)
    if origin.can_access_peer(backend.device):
        return _moving_by_kernel(origin, backend, target, source)
    return _moving_packed(origin, backend, target, source)


def _lies_as(source: Meta, target: Meta) -> bool:
    return (source.dtype, source.shape, source.strides) == (target.dtype, target.shape, target.strides)


def _moving_bytes(origin: Any, backend: Any, target: Meta) -> Move:
    nbytes = target.numel * target.dtype.itemsize

    def move(value: Value, result: Value) -> None:
        origin.send(backend, partial(origin.copy_to_peer, backend, pointer(value), pointer(result), nbytes))

    return move


def _moving_by_kernel(origin: Any, backend: Any, target: Meta, source: Meta) -> Move:
    with origin.as_current():
        launch = origin.at_once(copying(origin, target, source))

    def move(value: Value, result: Value) -> None:
        with origin.as_current():
            origin.send(backend, partial(launch, (value,), (result,)))

    return move


def _moving_packed(origin: Any, backend: Any, target: Meta, source: Meta) -> Move:
    landed = target if is_dense(target.shape, target.strides) else target.like()
    packed = Meta.of(landed.shape, landed.dtype, source.device, landed.strides)
    with origin.as_current():
        pack = origin.at_once(copying(origin, packed, source))
    unpack = None if landed is target else copying(backend, target, landed)
    move_bytes = _moving_bytes(origin, backend, landed)

    def move(value: Value, result: Value) -> None:
        sent, received = origin.empty(packed), result if unpack is None else backend.empty(landed)
        with origin.as_current():
            pack((value,), (sent,))
        move_bytes(sent, received)
        if unpack is not None:
            unpack((received,), (result,))

    return move
