"""What the operators have in common: functions of tensors, which a trace of the call writes down as graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from telegrad._library.compiled.higher_order import HigherOrderOperator
from telegrad._ops.operand_classes import overrides
from telegrad.utils._pytree import tree_flatten

Outputs = Sequence[Sequence[Any]]
"""What each function has returned in the trace, in the order of the functions."""


def tracing() -> Any:
    """Return the innermost mode if it writes down calls of functions; None if there is none."""
    mode = overrides.dispatch_modes[-1] if overrides.dispatch_modes else None
    return mode if hasattr(mode, "call_of_functions") else None


class FlatFunction:
    """A function of tensors that returns the leaves of its result; ``returned`` is the structure around these."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.returned: Any = None

    def __call__(self, *leaves: Any) -> tuple[Any, ...]:
        made, self.returned = tree_flatten(self._function(*leaves))
        return tuple(made)


class FunctionOperator(HigherOrderOperator):
    """An operator whose arguments are ``first`` others, functions, and ``tail`` sequences of tensors.

    Functions are given tensors of the last sequence after their own. ``graphs`` begin the names of the functions'
    graphs; ``examples`` returns what each function is called on, given the sequences. ``run`` computes; ``traced``
    returns the results where the functions have been traced, given the arguments and what they returned.
    """

    def __init__(
        self, name: str, run: Callable[..., Any], examples: Callable[..., Sequence[Sequence[Any]]],
        graphs: Sequence[str], tail: int, first: int = 0,
        traced: Callable[[Sequence[Any], Outputs], Sequence[Any]] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name)
        self.graphs, self.first, self.tail = tuple(graphs), first, tail
        self._run, self.examples, self._traced = run, examples, traced

    def __call__(self, *args: Any) -> Any:
        missing = self.first + len(self.graphs) + self.tail - len(args)
        args = (*args, *[()] * missing)
        mode = tracing()
        return self._run(*args) if mode is None else mode.call_of_functions(self, args)

    def results(self, args: Sequence[Any], outputs: Outputs) -> Sequence[Any]:
        """Return what the operator does, in a trace in which its functions have returned these outputs."""
        return self._run(*args) if self._traced is None else self._traced(args, outputs)
