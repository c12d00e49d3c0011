"""Random numbers under ``vmap``: refused, different for each element of the batch, or the same for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from telegrad._ops.batching import Level, _Batching, batching, below
from telegrad._ops.functions import function
from telegrad._ops.randomness import draws
from telegrad._session.session import ClientSession
from telegrad._session.thread_modes import thread
from telegrad._tensor.listed import tensors_in
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import AutogradError
from telegrad_protocol.messages import RandomState
from telegrad_protocol.ops import Op

from . import fallback, running
from .binding import bound_call
from .case import Case
from .tensor import BatchedTensor, innermost_of, physical_at


def _check_allowed(level: Level) -> None:
    if level.randomness == "error":
        raise AutogradError(
            "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' "
            "randomness flags on vmap or perform the randomness operation out of vmap"
        )


def draw(run: Callable[..., Any], op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation that draws random numbers, in the innermost level of the thread."""
    number = len(batching.levels)
    if not draws(op, args, kwargs) or innermost_of((*args, *kwargs.values())) == number:
        return run(*args, **kwargs)
    with below(number) as level:
        _check_allowed(level)
        if level.randomness == "same":
            return draw(run, op, args, kwargs) if batching.levels else run(*args, **kwargs)
        if op.mutates:
            raise AutogradError(
                "vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will appear like same "
                "randomness. If this is necessary for your usage, clone the tensor for each element of the batch first."
            )
        if not any(True for _ in tensors_in((*args, *kwargs.values()))):
            return BatchedTensor(number, _of_sizes(op, args, kwargs, level.size))
    given = [_expanded(value, number, level.size) for value in args]
    return run(*given, **{name: _expanded(value, number, level.size) for name, value in kwargs.items()})


def _expanded(value: Any, number: int, size: int) -> Any:
    return BatchedTensor(number, physical_at(value, number, size)) if isinstance(value, Tensor) else value


def _of_sizes(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], size: int) -> Any:
    """Return what a function that makes tensors draws for a whole batch."""
    named = dict(kwargs)
    extra = {name: named.pop(name) for name in list(named) if name not in {param.name for param in op.params}}
    found = bound_call(op.public, args, named)
    if found is None:
        return function(op.public)(*args, **kwargs)
    chosen, bound = found
    names = [param.name for param in chosen.params]
    if "size" not in names:  # a permutation
        return function("stack")([function(op.public)(*args, **kwargs) for _ in range(size)])
    place = names.index("size")
    values = [*bound[:place], (size, *bound[place]), *bound[place + 1 :]]
    options = dict(zip(names[chosen.positional :], values[chosen.positional :], strict=True))
    if chosen.varargs_at >= 0:
        options |= dict(zip(names[place + 1 : chosen.positional], values[place + 1 : chosen.positional], strict=True))
        return function(op.public)(*values[: place + 1], **options, **extra)
    return function(op.public)(*values[: chosen.positional], **options, **extra)


def run(op: Op, bound: Sequence[Any], number: int, level: Level) -> Any:
    """Run an operation that draws random numbers and has batched operands."""
    _check_allowed(level)
    if level.randomness == "different":
        return running.run(op, bound, number, level)
    metas = tuple([running.meta_of(value) for value in bound])
    outs = op.infer(metas)
    args = [running.operand_of(value, meta, number, level.size) for value, meta in zip(bound, metas, strict=True)]
    case = Case(op, args, level.size, outs if isinstance(outs, tuple) else (outs,))  # type: ignore[arg-type]
    session = next(tensors_in(bound))._session
    with _rewound(session) as rewind:
        result = fallback.looped(case, rewind)
    return bound[op.mutates[0]] if op.mutates else running.result_at(result, number)


@contextmanager
def _rewound(session: ClientSession) -> Iterator[Callable[[], None]]:
    """Yield what sets the generators back to where they were at the beginning of this block."""
    state = session.new_id()
    session.submit(RandomState(state, False), thread.modes)
    try:
        yield lambda: session.submit(RandomState(state, True), thread.modes)
    finally:
        session.free(state)


_Batching.draw = staticmethod(draw)
