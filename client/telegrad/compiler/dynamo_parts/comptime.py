"""``torch._dynamo.comptime``: functions that a compiled one calls when it is compiled, which is its first call here."""

from __future__ import annotations

import dis
import sys
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from telegrad._tensor.tensor import Tensor
from telegrad.compiler import regions
from telegrad.fx.graph import Graph

_called: Final[dict[tuple[Any, int], object]] = {}
"""Since which ``reset`` a line of a compiled function has called what it calls once, by code and place."""


class ComptimeVar:
    """A variable of the function that is compiled; it has its value, since the function runs."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def as_proxy(self) -> Any:
        """Return the value: no symbol stands for it."""
        return self._value

    def is_proxy(self) -> bool:
        """Whether the graph computes it: whether it is a tensor."""
        return isinstance(self._value, Tensor)

    def as_fake(self) -> Any:
        """Return the tensor, whose size and type it has."""
        return self._value

    def size(self, dim: int | None = None) -> Any:
        """Return the sizes of a tensor, or one of them."""
        return self._value.size() if dim is None else self._value.size(dim)

    def python_type(self) -> type:
        """Return the class of the variable's value."""
        return type(self._value)

    def is_python_constant(self) -> bool:
        """Whether the graph does not compute it, so that its value stays: whether it is no tensor."""
        return not isinstance(self._value, Tensor)

    def as_python_constant(self) -> Any:
        """Return the value that the variable has while the function is compiled."""
        return self._value

    def is_dynamic(self) -> bool:
        """Whether it is a size without a number: there is none."""
        return False

    def force_static(self) -> None:
        """Have a size be a number in what is compiled, which every size is: nothing is to be done."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._value!r})"


class ComptimeContext:
    """What a function that is called at compile time may ask: of the frame that it is called in, and its graph."""

    def __init__(self, frame: FrameType) -> None:
        self._frame = frame

    def get_local(self, name: str, *, stacklevel: int = 0) -> ComptimeVar:
        """Return a variable of the function, or of one that has called it."""
        variables = self._at(stacklevel).f_locals
        if name not in variables:
            raise KeyError(f"get_local: the function has no variable {name!r}; it has {', '.join(variables) or 'none'}")
        return ComptimeVar(variables[name])

    def graph(self) -> Graph:
        """Return the graph so far, which has calls if the backend is a function of the program's own."""
        writer = getattr(regions.active.region, "_writer", None)
        return Graph() if writer is None else writer.graph

    def graph_break(self, msg: str = "ComptimeContext.graph_break") -> None:
        """End the program that is being recorded, so that what follows is part of another one."""
        if regions.active.region is not None:
            regions.active.region.split(msg)

    def parent(self) -> ComptimeContext:
        """Return the context of the function that has called this one."""
        return ComptimeContext(self._at(1))

    def assert_static(self, val: ComptimeVar) -> None:
        """Require that a size is a number in what is compiled, which every size is: nothing is to be done."""

    def print(self, val: Any, *, file: Any = None) -> None:
        """Print a value."""
        print(repr(val), file=file)

    def print_graph(self, *, verbose: bool = True, file: Any = None) -> None:
        """Print the graph so far as code."""
        print(self.graph().python_code("self", verbose=verbose).src, file=file)

    def print_locals(self, *, file: Any = None, stacklevel: int = 0) -> None:
        """Print the variables of the function."""
        for name, value in self._at(stacklevel).f_locals.items():
            print(f"{name} = {ComptimeVar(value)!r}", file=file)

    def print_bt(self, *, file: Any = None, stacklevel: int = 0) -> None:
        """Print the lines that lead to the function."""
        print("".join(traceback.format_stack(self._at(stacklevel))), file=file)

    def print_disas(self, *, file: Any = None, stacklevel: int = 0) -> None:
        """Print the function's bytecode."""
        frame = self._at(stacklevel)
        print(dis.Bytecode(frame.f_code, current_offset=frame.f_lasti).dis(), file=file)

    def print_value_stack(self, *, file: Any = None, stacklevel: int = 0) -> None:
        """Print nothing: the interpreter's stack is its own."""

    def print_guards(self, *, file: Any = None) -> None:
        """Print nothing: what a call depends on is known after it."""

    def sleep(self, sec: float) -> None:
        """Sleep."""
        time.sleep(sec)

    def _at(self, stacklevel: int) -> FrameType:
        frame = self._frame
        for _ in range(stacklevel):
            frame = frame.f_back or frame
        return frame


class _Comptime:
    """``comptime(function)`` calls it with a context in the first call of a compiled function, and not otherwise."""

    def __call__(
        self, fn: Callable[[ComptimeContext], Any], fallback_fn: Callable[[], Any] = lambda: None
    ) -> Any:  # fmt: skip
        return self._once(sys._getframe(1), fn, fallback_fn)

    def _once(self, frame: FrameType, fn: Callable[[ComptimeContext], Any], otherwise: Callable[[], Any]) -> Any:
        if regions.active.region is None:
            return otherwise()
        place, epoch = (frame.f_code, frame.f_lasti), regions.active.epoch
        if place not in _called or _called[place] is not epoch:
            _called[place] = epoch
            fn(ComptimeContext(frame))
        return None

    def graph_break(self) -> None:
        """End the program that is being recorded, so that what follows is part of another one."""
        if regions.active.region is not None:
            regions.active.region.split("comptime.graph_break()")

    def print(self, e: Any) -> None:
        """Print a value at compile time."""
        self._once(sys._getframe(1), lambda ctx: ctx.print(ComptimeVar(e)), lambda: print(e))

    def print_graph(self) -> None:
        """Print the graph so far at compile time."""
        self._once(sys._getframe(1), lambda ctx: ctx.print_graph(), lambda: None)

    def print_disas(self, *, stacklevel: int = 0) -> None:
        """Print the function's bytecode at compile time."""
        self._once(sys._getframe(1), lambda ctx: ctx.print_disas(stacklevel=stacklevel), lambda: None)

    def print_value_stack(self, *, stacklevel: int = 0) -> None:
        """Print nothing: the interpreter's stack is its own."""

    def print_value_stack_and_return(self, e: Any, *, stacklevel: int = 0) -> Any:
        """Return the value."""
        return e

    def print_locals(self, *, stacklevel: int = 0) -> None:
        """Print the function's variables at compile time."""
        self._once(sys._getframe(1), lambda ctx: ctx.print_locals(stacklevel=stacklevel), lambda: None)

    def print_bt(self, *, stacklevel: int = 0) -> None:
        """Print the lines that lead here at compile time."""
        self._once(sys._getframe(1), lambda ctx: ctx.print_bt(stacklevel=stacklevel), lambda: None)

    def print_guards(self) -> None:
        """Print nothing: what a call depends on is known after it."""

    def assert_static(self, val: Any) -> None:
        """Require that a size is a number in what is compiled, which every size is: nothing is to be done."""

    def force_static(self, val: Any) -> None:
        """Have a size be a number in what is compiled, which every size is: nothing is to be done."""

    def breakpoint(self) -> None:
        """Stop in Python's debugger at compile time."""
        self._once(sys._getframe(1), lambda ctx: breakpoint(), lambda: None)

    def sleep(self, sec: float) -> None:
        """Sleep at compile time."""
        self._once(sys._getframe(1), lambda ctx: ctx.sleep(sec), lambda: None)


comptime: Final = _Comptime()
