"""What threads that share an operation's work do without Python's lock: wait for a job, take its pieces, call them.

A job is a table of records, one for each piece. A record is a row of 64-bit words, of which the first is the address of
a function that takes the record's address and returns nothing. The state that threads share is words, too, of which
those that different threads write are in cache lines of their own.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

_LINE = 64
JOB, OPEN, ACTIVE, STOP = (_LINE * line for line in range(4))
"""Offsets: the number of the last job; that of the one whose pieces may be taken, or 0; how many helpers may be reading
the job; whether helpers are to end."""
RECORDS, STRIDE, PIECES, HELPERS, KIND = (4 * _LINE + 8 * word for word in range(5))
"""What a job is: its records' address, the bytes of each, their number, how many helpers it may have, and whether its
pieces are Python's."""
ASLEEP = 5 * _LINE
"""From here on a line for each helper: whether it sleeps, the last job that it has seen, and until when it is to sleep
between jobs."""
MOST_HELPERS = 63
TAKEN = ASLEEP + _LINE * MOST_HELPERS
"""From here on a line for each thread, the first of which is no helper: how many of its pieces were taken."""
WORDS = (TAKEN + _LINE * (MOST_HELPERS + 1)) // 8
SLEEPS, PYTHON, ENDS = range(3)
"""Why ``serve`` returns."""
_PAUSES = 16
"""How often a waiting thread lets its processor pause before it lets the system run another thread."""
_WANTED = 20_000
"""Nanoseconds of a wait from which on another thread has run on this processor, and is likely to want it again."""
_LEFT_ALONE = 8
"""So many times as long as that wait took a helper leaves the processor alone between jobs."""
_long, _byte = ir.IntType(64), ir.IntType(8)
_int64 = types.int64


def _word(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _long.as_pointer())


@intrinsic  # type: ignore[untyped-decorator]
def get(typing: Any, address: Any) -> Any:
    """Read a word that other threads write."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_word(builder, args[0]), "seq_cst", 8)

    return _int64(_int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def put(typing: Any, address: Any, value: Any) -> Any:
    """Write a word that other threads read."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[1], _word(builder, args[0]), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(_int64, _int64), generate


def _update(operation: str) -> Any:
    """A function that changes a word at once, and returns what it was."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw(operation, _word(builder, args[0]), args[1], "seq_cst")

    @intrinsic  # type: ignore[untyped-decorator]
    def function(typing: Any, address: Any, value: Any) -> Any:
        return _int64(_int64, _int64), generate

    return function


add, swap = _update("add"), _update("xchg")


@intrinsic  # type: ignore[untyped-decorator]
def _call(typing: Any, function: Any, record: Any) -> Any:
    """Call a function at an address with the address of a record."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_long]).as_pointer()
        builder.call(builder.inttoptr(args[0], kind), [args[1]])
        return context.get_dummy_value()

    return types.void(_int64, _int64), generate


_X86: Any = ("llvm.x86.sse2.pause",)
_ARM: Any = ("llvm.aarch64.hint", ir.Constant(ir.IntType(32), 1))
_PAUSE = {"x86_64": _X86, "AMD64": _X86, "aarch64": _ARM, "arm64": _ARM}
"""The processor's instruction for a loop that waits, by architecture."""


@intrinsic  # type: ignore[untyped-decorator]
def _pause(typing: Any) -> Any:
    """Tell the processor that this thread waits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        name, *given = _PAUSE.get(platform.machine(), ("",))
        if name:
            kinds = [number.type for number in given]
            function = ir.FunctionType(ir.VoidType(), kinds)
            builder.call(builder.module.declare_intrinsic(name, (), function), given)
        return context.get_dummy_value()

    return types.void(), generate


_yield = types.ExternalFunction("sched_yield", types.int32())


@intrinsic  # type: ignore[untyped-decorator]
def _nanoseconds(typing: Any) -> Any:
    """The system's clock that never goes back."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        read = cgutils.alloca_once(builder, ir.ArrayType(_long, 2))
        number = ir.IntType(32)
        function = ir.FunctionType(number, [number, read.type])
        clock = cgutils.get_or_insert_function(builder.module, function, "clock_gettime")
        builder.call(clock, [number(time.CLOCK_MONOTONIC), read])
        seconds, rest = [builder.load(cgutils.gep_inbounds(builder, read, 0, word)) for word in range(2)]
        return builder.add(builder.mul(seconds, _long(1_000_000_000)), rest)

    return _int64(), generate


_FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98}.get(platform.machine(), 0) if sys.platform == "linux" else 0
"""The number of the system call by which Linux lets a thread sleep on a word; 0 where Python's locks do."""
_SLEEP, _WAKE = 128, 129
"""What that call is asked for: to sleep as long as the word is as it is said to be, and to wake; within one process."""
_call_system = types.ExternalFunction("syscall", _int64(*[_int64] * 7))


def _compiled(signature: str) -> Callable[[Any], Any]:
    decorate: Callable[[Any], Any] = njit(signature, cache=True, nogil=True)
    return decorate


@_compiled("int64()")
def wait() -> Any:
    """Wait a microsecond or so, in which other threads of this processor may run."""
    for _ in range(_PAUSES):
        _pause()
    return _yield()


@_compiled("void(int64)")
def _sleep(word: int) -> None:
    """Sleep, at most as long as the word is 1; a signal may end it, too."""
    _call_system(_FUTEX, word, _SLEEP, 1, 0, 0, 0)


@_compiled("void(int64)")
def _wake(word: int) -> None:
    _call_system(_FUTEX, word, _WAKE, 1, 0, 0, 0)


@_compiled("int64(int64, int64, int64)")
def take(state: int, most: int, own: int) -> int:
    """Call pieces until none is left, or so many were called: those of a thread itself, and then those of the others.

    Each thread has the same pieces in all jobs of as many, so that it finds in its caches what it wrote or read before.
    """
    records, stride, pieces = get(state + RECORDS), get(state + STRIDE), get(state + PIECES)
    threads = get(state + HELPERS) + 1
    called = 0
    for turn in range(threads):
        thread = (own + turn) % threads
        first, last = pieces * thread // threads, pieces * (thread + 1) // threads
        taken = state + TAKEN + _LINE * thread
        while get(taken) < last - first:
            piece = first + add(taken, 1)
            if piece >= last:
                break
            record = records + piece * stride
            _call(get(record), record)
            called += 1
            if called == most:
                return 1
    return 0


@_compiled("int64(int64, int64, int64)")
def serve(state: int, helper: int, waits: int) -> int:
    """Help with jobs until there has been none for so many waits, or Python is wanted; return why.

    A helper without a job sleeps at once where another thread wants its processor, and for some time after that.
    """
    own = state + ASLEEP + _LINE * helper
    seen = get(own + 8)
    put(own, 0)
    waited = 0
    while get(state + STOP) == 0:
        number = get(state + JOB)
        if number != seen:
            seen = number
            put(own + 8, number)
            if helper < get(state + HELPERS):
                add(state + ACTIVE, 1)
                is_python = get(state + KIND)
                if get(state + OPEN) == number:
                    if is_python:
                        add(state + ACTIVE, -1)
                        return PYTHON
                    take(state, 1 << 62, helper + 1)
                add(state + ACTIVE, -1)
                waited = 0
        begin = _nanoseconds()
        if waited >= waits or begin < get(own + 16):
            put(own, 1)
            if _FUTEX:
                while get(own) and get(state + JOB) == seen and get(state + STOP) == 0:
                    _sleep(own)
                put(own, 0)
                waited = 0
                continue
            if get(state + JOB) == seen or swap(own, 0) == 0:
                return SLEEPS
        wait()
        waited += 1
        now = _nanoseconds()
        if now - begin > _WANTED:
            put(own + 16, now + _LEFT_ALONE * (now - begin))
    return ENDS


@_compiled("int64(int64, int64, int64, int64, int64, int64)")
def publish(state: int, records: int, stride: int, pieces: int, helpers: int, is_python: int) -> int:
    """Open a job; return bits that say which of its helpers are asleep, and are to be woken by Python.

    A job of Python's is still open: no helper may read this one in its place before all of it is written.
    """
    number = get(state + JOB) + 1
    put(state + OPEN, 0)
    while get(state + ACTIVE):
        wait()
    put(state + RECORDS, records)
    put(state + STRIDE, stride)
    put(state + PIECES, pieces)
    put(state + HELPERS, helpers)
    put(state + KIND, is_python)
    for thread in range(helpers + 1):
        put(state + TAKEN + _LINE * thread, 0)
    put(state + OPEN, number)
    put(state + JOB, number)
    asleep = 0
    for helper in range(helpers):
        own = state + ASLEEP + _LINE * helper
        if get(own) and swap(own, 0):
            if _FUTEX:
                _wake(own)
            else:
                asleep |= 1 << helper
    return asleep


@_compiled("void(int64, int64)")
def end(state: int, helpers: int) -> None:
    """Let so many helpers return, those that sleep too."""
    put(state + STOP, 1)
    for helper in range(helpers):
        own = state + ASLEEP + _LINE * helper
        if swap(own, 0) and _FUTEX:
            _wake(own)


@_compiled("void(int64)")
def close(state: int) -> None:
    """Let nobody take another piece, and wait for those that are at work."""
    put(state + OPEN, 0)
    for thread in range(get(state + HELPERS) + 1):
        put(state + TAKEN + _LINE * thread, get(state + PIECES))
    while get(state + ACTIVE):
        wait()


@_compiled("int64(int64, int64)")
def work(state: int, most: int) -> int:
    """Call at most so many pieces; where none is left, wait for the helpers, close the job, and return 0."""
    if take(state, most, 0):
        return 1
    close(state)
    return 0
