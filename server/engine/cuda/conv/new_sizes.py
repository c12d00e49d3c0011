"""Convolutions on sizes that change from step to step begin without a plan of cuDNN's, and get one if they come again.

Knows neither plans nor kernels: who has them says how a convolution is launched with one, and without.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

from server.engine import context
from server.engine.cuda.runtime import cudnn_graph
from server.engine.cuda.runtime.provisional import Provisional
from server.engine.operators import Request
from server.engine.value import Launch, Value
from telegrad_protocol.layout import Size, contiguous_strides
from telegrad_protocol.meta import Meta

from .windows import Slide

ASKED_AT: Final = 3
"""The call of a small convolution on changing sizes that is the first to get a plan."""
PLANNED_AT_ONCE = 4
"""So many sizes get a plan at once: batches for training and for looking at it, and the last ones of each."""
_MOST_KERNELS: Final = 1 << 12
_sizes_met: dict[Hashable, int] = {}
"""How many sizes have got a plan at once, by the kernel and how it slides."""


def slide_of(kernel: Size, dilation: Size, padding: Size, stride: Size) -> Slide:
    """How windows slide over pictures; sequences are pictures of one line."""
    if len(kernel) > 1:
        return Slide(kernel, dilation, padding, stride)
    return Slide((1, *kernel), (1, *dilation), (0, *padding), (1, *stride))


def flat(meta: Meta) -> Meta:
    """A row-major sequence as a picture of one line; anything else as it is."""
    if meta.ndim != 3:
        return meta
    shape = (*meta.shape[:2], 1, meta.shape[2])
    return meta.view(shape, contiguous_strides(shape))


def begun(
    request: Request, groups: int, kernel: Hashable, by_columns: Callable[[], Launch | None],
    planned: Callable[[], Launch | None],
) -> Launch | None:  # fmt: skip
    """The launch of a convolution that begins without a plan of cuDNN's where it may, and gets one when it comes again.

    It may where the sizes that the kernel meets change from step to step. Results of the two differ by rounding, so all
    others have a plan at once, as have those of sessions that want the same results each time, or the fastest plan.
    """
    metas = [*request.args[:2], *request.outs]
    begins = groups == 1 and not _hurries() and all(m.ndim in (3, 4) and m.is_contiguous for m in metas)
    begins = begins and _changes((request.op.name, metas[0].dtype, kernel))
    run = by_columns() if begins else None
    if run is None:
        return planned()
    beginning = Provisional(request.backend, run, planned, ASKED_AT)

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        if _hurries():
            beginning.settle()
        beginning(args, outs)

    return launch


def _changes(kernel: Hashable) -> bool:
    """Whether a kernel has met so many sizes that those to come are likely others; counts one more."""
    met = _sizes_met.get(kernel, 0)
    if met >= PLANNED_AT_ONCE:
        return True
    if len(_sizes_met) >= _MOST_KERNELS:
        _sizes_met.clear()
    _sizes_met[kernel] = met + 1
    return False


def _hurries() -> bool:
    return context.current.cudnn.benchmark or not context.current.cudnn.enabled or cudnn_graph.is_deterministic()
