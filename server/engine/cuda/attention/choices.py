"""Which kernel serves an attention: our own serve every shape at once, cuDNN's need a plan for each.

Our kernel for few rows of queries is the fastest one for these, and takes masks as they are. That for Hopper is the
fastest forward pass where it has tiles for all multiprocessors. Elsewhere a kernel of our own serves a shape until
cuDNN's plan would have paid for itself, or until the work that the attention is a part of is captured. So lengths that
change all the time, as in decoding, are never planned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from server.engine import keys
from server.engine.cuda.runtime import cudnn_graph
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Backend, Launch, Value
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.layers import attention as ops

from . import cudnn, few_rows, hopper, tiled

_PLAN_SECONDS: Final = 0.047
"""What building cuDNN's plan for a shape takes."""
_CUDNN_RATE: Final = 250e12
"""Operations a second of cuDNN's kernels and of our own for Hopper, where they have enough to do."""
_FORWARD_RATE: Final = 26e12
_BACKWARD_RATE: Final = 40e12
"""The same of our tiled kernels. As the others it was measured on an H200, and only the ratios matter."""
_FEW_ROWS_BYTES: Final = 1.4e12
_CUDNN_BYTES: Final = 4.2e12
"""Bytes of keys and values that our kernel for few rows reads in a second where heads share them, and cuDNN's."""
_BACKWARD_FACTOR: Final = 2.5
"""How many times the operations of a forward pass a backward pass has."""


class LaunchUntilPlanned:
    """Launches a kernel of our own until a plan has paid for itself, and the plan from then on.

    ``saved`` are the seconds that each launch of the plan would save. ``build`` makes it, and returns None where the
    library has none: our own kernel stays then.
    """

    __slots__ = ("_backend", "_build", "_is_settled", "_launch", "_left", "_saved")

    def __init__(self, backend: Backend, own: Launch, build: Callable[[], Launch | None], saved: float) -> None:
        self._backend, self._launch, self._build = backend, own, build
        self._left, self._saved = _PLAN_SECONDS, saved
        self._is_settled = False

    def __call__(self, args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        if not self._is_settled and self._is_due():
            self._launch, self._is_settled = self._build() or self._launch, True
        self._launch(args, outs)

    def _is_due(self) -> bool:
        """Whether to build the plan now: at once where results must be the same in every run."""
        if self._backend.is_capturing:
            return False
        self._left -= self._saved
        return self._left <= 0.0 or self._backend.settles or cudnn_graph.is_deterministic()


def _operations(query: Meta, key: Meta, value: Meta, is_causal: bool) -> float:
    """The additions and multiplications of a forward pass."""
    products = 2 * math.prod(query.shape[:3]) * key.shape[2] * (query.shape[3] + value.shape[3])
    return products / 2 if is_causal else products


def _chosen(
    request: Request, own: Launch | None, build: Callable[[Request], Launch | None], saved: float
) -> Launch | None:
    """Our own launch until a plan, which saves so many seconds a launch, is worth it; the plan where it is the only."""
    if own is None:
        return build(request)
    return LaunchUntilPlanned(request.backend, own, partial(build, request), saved)


@prepares(ops._attention, keys.CUDA, deferrable=True)
def forward(request: Request) -> Launch | None:
    """softmax(query @ key.T * scale + mask) @ value, and the logarithms of the rows' sums where backward needs them"""
    query, key, value, mask, is_causal, *_ = request.args
    few = few_rows.forward(request)
    if few is not None:
        if few_rows.is_fastest(query, key, mask) or not cudnn.takes(query, key, value, mask):
            return few
        read = (key.numel + value.numel) * key.dtype.itemsize
        return _chosen(request, few, cudnn.forward, read * (1 / _FEW_ROWS_BYTES - 1 / _CUDNN_BYTES))
    on_hopper = hopper.forward(request)
    if on_hopper is not None and on_hopper.balance >= hopper.LEAST_BALANCE:
        return on_hopper.launch
    own = tiled.forward(request) if on_hopper is None else on_hopper.launch
    if not cudnn.takes(query, key, value, mask):
        return own
    own_rate = _FORWARD_RATE if on_hopper is None else _CUDNN_RATE * on_hopper.balance
    saved = _operations(query, key, value, is_causal) * (1 / own_rate - 1 / _CUDNN_RATE)
    return _chosen(request, own, cudnn.forward, saved)


@prepares(ops._attention_backward, keys.CUDA, deferrable=True)
def backward(request: Request) -> Launch | None:
    """The gradients of query, key and value"""
    return gradients(request, cudnn.backward)


def gradients(request: Request, by_cudnn: Callable[[Request], Launch | None]) -> Launch | None:
    """The launch of the gradients, which lie as the request says; ``by_cudnn`` makes that of a plan."""
    _, query, key, value, mask, _, _, is_causal, _ = request.args
    own = tiled.backward(request)
    if not cudnn.takes(query, key, value, mask):
        return own
    operations = _BACKWARD_FACTOR * _operations(query, key, value, is_causal)
    return _chosen(request, own, by_cudnn, operations * (1 / _BACKWARD_RATE - 1 / _CUDNN_RATE))
