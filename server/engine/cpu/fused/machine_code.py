"""Loops over arrays that LLVM compiles when a program is specialised, in some tens of milliseconds.

LLVM comes with Numba. No flag allows it to change what floating-point arithmetic gives, so that a loop computes what
NumPy computes. Where LLVM is not installed, or not wanted, there are no loops.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import struct
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

from server.engine.compiled import SETTING, vector_features

Loop = Callable[[Sequence[int], bytes], None]
"""Takes the addresses of arrays, and their shape as packed 64-bit integers."""


_LOOP_BYTES: Final = 100 << 10
_CHARACTER_BYTES: Final = 12
"""What a loop takes, and for each character of its text, as measured: LLVM keeps what it has compiled."""


class _MachineCode(NamedTuple):
    """A function, and what its instructions belong to."""

    engine: Any
    function: Callable[..., None]


@cache
def features() -> frozenset[str]:
    """What the host's processor can do beside its architecture; empty where nothing can be compiled for it."""
    if os.environ.get(SETTING) == "never" or importlib.util.find_spec("llvmlite") is None:
        return frozenset()
    binding = binding_of()
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return frozenset(["llvm", *[name for name, has in binding.get_host_cpu_features().items() if has]])


def compiled(text: str, name: str, count: int, strides: Sequence[int], numbers: bytes) -> Loop:
    """The function ``name`` of LLVM's assembly language, which takes the addresses of so many arrays and a shape.

    Its strides and numbers are fixed; it gets them, too, as addresses of memory.
    """
    code = _machine_code(text, name)
    packed, pack = struct.pack(f"{len(strides)}q", *strides), struct.Struct(f"{count}Q").pack

    def loop(addresses: Sequence[int], shape: bytes) -> None:
        code.function(pack(*addresses), shape, packed, numbers)

    return loop


def code_bytes(text: str) -> int:
    """Return about how many bytes the host holds for a loop."""
    return _LOOP_BYTES + _CHARACTER_BYTES * len(text)


class _Engine:
    """Holds the machine code of many loops, until none of them is used any more: each alone would take a megabyte."""

    def __init__(self) -> None:
        self.size = 0
        self._machine = _machine()
        self._engine = binding_of().create_mcjit_compiler(binding_of().parse_assembly(""), _machine())

    def add(self, text: str, name: str) -> Callable[..., None]:
        """Compile a text and return its function ``name``."""
        binding = binding_of()
        own = f"{name}{self.size}"
        self.size += 1
        module = binding.parse_assembly(text.replace(f'@"{name}"', f'@"{own}"'))
        tuning = binding.create_pipeline_tuning_options(speed_level=3)
        tuning.loop_vectorization = tuning.slp_vectorization = True
        passes = binding.create_pass_builder(self._machine, tuning)
        passes.getModulePassManager().run(module, passes)
        self._engine.add_module(module)
        self._engine.finalize_object()
        function: Callable[..., None] = ctypes.CFUNCTYPE(None, *[ctypes.c_char_p] * 4)(
            self._engine.get_function_address(own)
        )
        return function


def binding_of() -> Any:
    """LLVM, as llvmlite binds it."""
    from llvmlite import binding

    return binding


def _machine() -> Any:
    binding = binding_of()
    return binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=vector_features(), opt=3
    )


_MOST_LOOPS = 128
"""Loops of an engine, after which another one is begun."""
_engines: list[_Engine] = []


@lru_cache(maxsize=256)
def _machine_code(text: str, name: str) -> _MachineCode:
    """Compile a text; layers of a model share what comes of it."""
    if not _engines or _engines[0].size >= _MOST_LOOPS:
        _engines[:] = [_Engine()]
    return _MachineCode(_engines[0], _engines[0].add(text, name))
