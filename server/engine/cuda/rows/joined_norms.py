"""Normalizations with what a program computes before and after them: sums of rows, and results in half precision.

The kernels are those of ``layer_norm``. Elements are rounded where single operations round them, so that results are
the same; only what a normalization alone would write to memory and another kernel would read again stays in registers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

from server.engine import keys
from server.engine.array_library.dtypes import HALVES
from server.engine.programs.fused import JOINERS, Executor, Joiner
from server.engine.programs.joined import GRADIENTS, NORM, Joined
from server.engine.value import Backend, Value
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Device, Meta

from .layer_norm import Backward, Beside, forward_launch, have_accumulate_type
from .rowwise import byte_offset, fits_grid, held_rows
from .totals import MOST

_TYPES = (dtypes.float32, *HALVES)
_FORWARD = ("out", "mean", "rstd", "input", "weight", "bias", "other", "total", "copy")
"""What a launch forward takes the addresses of, in order."""
_BACKWARD = ("grad_out", "input", "mean", "rstd", "weight", "other", "copy")
"""What a launch backward takes the addresses of, after those of the input's gradient and of the partial sums."""
_SUMMED = ("grad_weight", "grad_bias", "sums")
"""The sums over rows, in the order in which their parts lie."""


def takes(joined: Joined) -> bool:
    """Whether there is a kernel: rows that registers hold, row-major operands, and types that go together."""
    roles = joined.roles
    input, other, copy = roles["input"], roles.get("other"), roles.get("copy")
    metas = list(roles.values())
    if not all([meta.is_contiguous and meta.dtype in _TYPES for meta in metas]):
        return False
    if copy is not None and (input.dtype is not dtypes.float32 or copy.dtype not in HALVES):
        return False
    if other is not None and dtypes.promote_types(input.dtype, other.dtype) is not input.dtype:
        return False
    if not have_accumulate_type(input, *[roles[role] for role in ("mean", "rstd") if role in roles]):
        return False
    return _is_held(joined) and fits_grid(input.numel)


def _length(joined: Joined) -> int:
    return math.prod(joined.attributes[0])


def _is_held(joined: Joined) -> bool:
    roles = joined.roles
    input = roles["input"]
    if joined.kind == GRADIENTS:
        return _backward(joined).holds
    aligned = [roles[role] for role in ("out", "input") if role in roles]
    return held_rows(_length(joined), aligned, (input,), also=(*map(roles.get, _FORWARD[4:]),)) is not None


def _backward(joined: Joined) -> Backward:
    roles = joined.roles
    outs = [meta for role, meta in joined.news if role not in ("copy", "sums")]
    beside = Beside(roles.get("other"), None, roles.get("copy"), roles.get("sums"))
    rms = joined.name == "_rms_norm_gradients"
    return Backward(outs, roles["grad_out"], roles["input"], roles.get("weight"), _length(joined), rms, beside)


def _placed(joined: Joined, wanted: tuple[str, ...]) -> Callable[[tuple[Value, ...]], list[int]]:
    """What tells the addresses of roles, of values for operands and results; 0 where a role is not there."""
    held = [*joined.loads, *joined.news]
    places = {role: (number, byte_offset(meta)) for number, (role, meta) in enumerate(held)}
    found = [places.get(role) for role in wanted]

    def addresses(values: tuple[Value, ...]) -> list[int]:
        return [0 if one is None else values[one[0]].storage.block.pointer + one[1] for one in found]

    return addresses


def _forward(backend: Backend, joined: Joined) -> Callable[[tuple[Value, ...]], None]:
    roles = joined.roles
    beside = Beside(roles.get("other"), roles.get("total"), roles.get("copy"))
    outs = [roles.get(role) for role in ("out", "mean", "rstd")]
    fire = forward_launch(
        roles["input"], outs, _length(joined), roles.get("weight"), roles.get("bias"), joined.attributes[1],
        joined.name == "_rms_norm", beside,
    )  # fmt: skip
    addresses = _placed(joined, _FORWARD)
    return lambda values: fire(backend.stream, *addresses(values))


def _gradients(backend: Backend, joined: Joined) -> Callable[[tuple[Value, ...]], None]:
    plan, roles = _backward(joined), joined.roles
    rows, partials = plan.held(True, True, roles.get("grad_input"))
    summed = [role for role in _SUMMED if role in roles]
    finish, scratch = plan.sums([roles[role] for role in summed], partials), plan.scratch(partials, len(summed))
    target, operands = _placed(joined, ("grad_input",)), _placed(joined, _BACKWARD)
    sums = _placed(joined, (*summed, *[""] * (MOST - len(summed))))

    def launch(values: tuple[Value, ...]) -> None:
        held = backend.empty(scratch)
        partial = held.storage.block.pointer
        rows(backend.stream, *target(values), partial, *operands(values))
        finish(backend.stream, *sums(values), partial)

    return launch


def makes(backend: Backend, joined: Joined) -> Executor:
    """Load the kernels, and return what allocates the results and starts them."""
    with backend.as_current():
        launch = (_gradients if joined.kind == GRADIENTS else _forward)(backend, joined)
    news, empty = [meta for _, meta in joined.news], backend.empty
    start = backend.deferring(lambda args, outs: launch((*args, *outs)))

    def run(args: tuple[Any, ...]) -> tuple[Any, ...]:
        values = tuple(map(empty, news))
        start(args, values)
        return values

    return Executor(backend.on_device(run), repr(joined), 0)


JOINERS[keys.CUDA, NORM] = JOINERS[keys.CUDA, GRADIENTS] = Joiner(takes, makes)


_USUAL_LENGTHS = (128, 256, 384, 512, 768, 1024, 1280, 1600, 2048)


def usual_loads() -> None:
    """Load what training and inference of Transformers need, in float32, in bfloat16, and in both under autocast."""
    for length in _USUAL_LENGTHS:
        for joined in _usual(length):
            (_gradients if joined.kind == GRADIENTS else _forward)(None, joined)  # type: ignore[arg-type]


def _usual(length: int) -> Iterator[Joined]:
    device = Device("cuda:0")
    wide, half = [Meta.of((64, length), dtype, device) for dtype in (dtypes.float32, dtypes.bfloat16)]
    statistic = Meta.of((64, 1), dtypes.float32, device)
    for name, x, other in itertools.product(("layer", "rms"), (wide, half), (None, "other")):
        weight, is_wide = x.like((length,)), x is wide
        moments = {"mean": statistic, "rstd": statistic} if name == "layer" else {"rstd": statistic}
        shift = {"bias": weight} if name == "layer" else {}
        parameters = {"grad_weight": weight, **({"grad_bias": weight} if name == "layer" else {})}
        kind, attributes = f"_{name}_norm", ((length,), 1e-5)
        before = {"other": half} if other and is_wide else {"other": x} if other else {}
        total = {"total": x} if other else {}
        copies: list[dict[str, Meta]] = [{"copy": half}] if is_wide else []
        for made in (*copies, *([{"out": x}] if other else [])):
            loads = {"input": x, "weight": weight, **shift, **before}
            yield _joined(NORM, kind, attributes, loads, {**total, **made, **moments})
        beside = {"other": x} if other else {}
        ways = [(half, copies), (x, [])] if is_wide else [(half, copies)]
        for grad, halves in ways:
            loads = {"grad_out": grad, "input": x, **moments, "weight": weight, **beside}
            news = {"grad_input": x, **parameters}
            for copied in [{**news, **copy} for copy in halves] + ([news] if beside or grad is not x else []):
                yield _joined(GRADIENTS, f"{kind}_gradients", attributes[:1], loads, copied)
            for made in [{**news, **copy} for copy in halves or [{}]]:
                sums = {"sums": made.get("copy", x).like((length,))}
                yield _joined(GRADIENTS, f"{kind}_gradients", attributes[:1], loads, {**made, **sums})


def check_loads(dtype: DType) -> None:
    """All roles at once, and as few as there are, for rows that a part of a warp, a warp or a block holds."""
    if dtype not in _TYPES:
        return
    for length in (40, 384, 2000):
        for joined in _examples(dtype, length):
            if takes(joined):
                (_gradients if joined.kind == GRADIENTS else _forward)(None, joined)  # type: ignore[arg-type]


def _examples(dtype: DType, length: int) -> Iterator[Joined]:
    device, wide = Device("cuda:0"), dtypes.float32
    x, half = Meta.of((64, length), dtype, device), Meta.of((64, length), dtypes.bfloat16, device)
    weight, statistic = Meta.of((length,), dtype, device), Meta.of((64, 1), wide, device)
    copies = {"copy": half} if dtype is wide else {}
    others = {"other": half if dtype is wide else x}
    moments = {"mean": statistic, "rstd": statistic}
    for name in ("layer", "rms"):
        own = moments if name == "layer" else {"rstd": statistic}
        shift = {"bias": weight} if name == "layer" else {}
        grads = {"grad_weight": weight, **({"grad_bias": weight} if name == "layer" else {})}
        attributes = ((length,), 1e-5)
        least: dict[str, Meta] = {"input": x}
        yield _joined(NORM, f"_{name}_norm", attributes, least, {**own, **(copies or {"out": x})})
        loads = {**least, "weight": weight, **shift, **others}
        yield _joined(NORM, f"_{name}_norm", attributes, loads, {"total": x, "out": x, **copies, **own})
        backward = {"grad_out": half, "input": x, **own}
        yield _joined(GRADIENTS, f"_{name}_norm_gradients", attributes[:1], backward, {"grad_input": x, **grads})
        news = {**({} if copies else {"grad_input": x}), **copies, **grads}
        loads = {**backward, "weight": weight, **others}
        for made in (news, {**news, "sums": news.get("copy", x).like((length,))}):
            yield _joined(GRADIENTS, f"_{name}_norm_gradients", attributes[:1], loads, made)


def _joined(kind: str, name: str, attributes: Any, loads: dict[str, Meta], news: dict[str, Meta]) -> Joined:
    return Joined(kind, name, attributes, tuple(loads.items()), tuple(news.items()))
