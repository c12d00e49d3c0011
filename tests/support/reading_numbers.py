"""Launches that read numbers in each call, as those of a GPU do, and compute on the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from server.engine.operators import OPERATORS, Preparer, Request
from server.engine.value import Launch, Value

_COMPUTED: Final[dict[str, Callable[..., Any]]] = {
    "mul": lambda a, b: a * b, "div": lambda a, b: a / b, "add": lambda a, b, alpha: a + b * alpha,
    "gt": lambda a, b: a > b, "rsub": lambda a, b, alpha: b - a * alpha, "sub": lambda a, b, alpha: a - b * alpha,
}  # fmt: skip


class ReadingNumbers:
    """A factory of such launches; without ``Request.reads_numbers`` they have the numbers of the request."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, request: Request) -> Launch | None:
        self.made += 1
        function, fixed = _COMPUTED[request.op.name], request.args

        def launch(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
            given = args if request.reads_numbers else fixed
            numbers = [arg.array if arg.__class__ is Value else one for arg, one in zip(args, given, strict=False)]
            with np.errstate(all="ignore"):
                outs[0].array[...] = function(*numbers[: len(fixed)])

        return launch


@contextmanager
def reading_numbers(key: int) -> Iterator[ReadingNumbers]:
    """Within the block a few element-wise operations are executed by such launches on the devices of a key."""
    factory = ReadingNumbers()
    forms = [operator for operator in OPERATORS.values() if operator.op.base.name in _COMPUTED]
    before = [(operator.reads_numbers, operator.preparers) for operator in forms]
    for operator in forms:
        operator.clear_caches()
        operator.reads_numbers = key
        operator.preparers = {key: [Preparer(factory, True, False, True, reads_numbers=True)]}
    try:
        yield factory
    finally:
        for operator, (reads, preparers) in zip(forms, before, strict=True):
            operator.clear_caches()
            operator.reads_numbers, operator.preparers = reads, preparers
