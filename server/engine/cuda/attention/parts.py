"""Attention's gradients side by side in one tensor, as the gradient of the product that made query, key and value.

The kernels of ``choices`` write anywhere. Where cuDNN has no plan for such places, its results are copied there.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from server.engine import keys
from server.engine.cuda.pointwise.joining import joining
from server.engine.cuda.runtime.launch import is_collecting
from server.engine.operators import OPERATORS, Request
from server.engine.ops.layers.attention import suits_cudnn, suits_tiles
from server.engine.programs.fused import JOINERS, Executor, Joiner
from server.engine.programs.joined import PARTS, Joined
from server.engine.value import Backend, Launch, Value
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.layers.attention import result_of

from . import choices, cudnn

_OPERANDS: Final = ("query", "key", "value")
_MOST_SHARED: Final = 1 << 8
"""So many launches are kept for layers that are alike."""
_OP: Final = OPERATORS["_attention_backward"].op


def takes(joined: Joined) -> bool:
    """Whether our own kernels take the operands, and cuDNN's the parts as well where they take the operands."""
    roles = joined.roles
    operands, parts = [roles[role] for role in _OPERANDS], _parts(joined)
    if "attn_mask" in roles or not suits_tiles(*operands) or not roles["logsumexp"].is_contiguous:
        return False
    return suits_cudnn(*parts) or not suits_cudnn(*operands)


def _parts(joined: Joined) -> list[Meta]:
    """Where the gradients of query, key and value lie in the result, seen as these are."""
    roles, order = joined.roles, joined.attributes[2]
    out, begin, parts = roles["out"], roles["out"].offset, {}
    for place in order:
        n, heads, t, e = roles[_OPERANDS[place]].shape
        parts[place] = out.view((n, heads, t, e), (out.strides[0], e, out.strides[1], 1), begin)
        begin += heads * e
    return [parts[place] for place in range(len(_OPERANDS))]


def _request(backend: Backend, joined: Joined) -> Request:
    roles, (is_causal, scale, _) = joined.roles, joined.attributes
    named = {**roles, "attn_mask": None, "is_causal": is_causal, "scale": scale}
    args = tuple([named[param.name] for param in _OP.params])
    return Request(_OP, backend, args, tuple(_parts(joined)), None)


def _by_cudnn(request: Request) -> Launch | None:
    return cudnn.backward(request) or _copied(request)


def _copied(request: Request) -> Launch | None:
    """A plan with results of their own, and copies of these."""
    metas = [result_of(meta, meta.shape) for meta in request.args[1:4]]
    launch = cudnn.backward(request._replace(outs=tuple(metas)))
    if launch is None:
        return None
    backend, copy = request.backend, joining(request.backend, list(zip(request.outs, metas, strict=True)))

    def run(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        made = [backend.empty(meta) for meta in metas]
        launch(args, tuple(made))
        copy((made,), outs[:1])

    return run


def _launch(backend: Backend, joined: Joined) -> Launch:
    launch = choices.gradients(_request(backend, joined), _by_cudnn)
    assert launch is not None
    return launch


_shared = lru_cache(_MOST_SHARED)(_launch)
"""The same for all layers of a model, which count together what a plan would have saved."""


def makes(backend: Backend, joined: Joined) -> Executor:
    """Return what allocates the result and starts the kernels."""
    request = _request(backend, joined)
    with backend.as_current():
        launch = (_launch if is_collecting() else _shared)(backend, joined)
    roles, parts, out = [role for role, _ in joined.loads], request.outs, joined.roles["out"]
    places = [roles.index(param.name) if param.name in roles else None for param in _OP.params]
    start, empty = backend.deferring(launch), backend.empty

    def run(args: tuple[Any, ...]) -> tuple[Any, ...]:
        made = empty(out)
        given = tuple([None if place is None else args[place] for place in places])
        start(given, tuple([Value(made.storage, part, backend) for part in parts]))
        return (made,)

    return Executor(backend.on_device(run), repr(joined), 0)


JOINERS[keys.CUDA, PARTS] = Joiner(takes, makes)
