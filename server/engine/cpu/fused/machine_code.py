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
from typing import Any, NamedTuple

from server.engine.compiled import SETTING

Loop = Callable[[Sequence[int], bytes], None]
"""Takes the addresses of arrays, and their shape as packed 64-bit integers."""


class _MachineCode(NamedTuple):
    """A function, and what its instructions belong to."""

    engine: Any
    function: Callable[..., None]


@cache
def features() -> frozenset[str]:
    """What the host's processor can do beside its architecture; empty where nothing can be compiled for it."""
    if os.environ.get(SETTING) == "never" or importlib.util.find_spec("llvmlite") is None:
        return frozenset()
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return frozenset(["llvm", *[name for name, has in binding.get_host_cpu_features().items() if has]])


def compiled(text: str, name: str, count: int, strides: Sequence[int]) -> Loop:
    """The function ``name`` of LLVM's assembly language, which takes addresses, a shape and strides, all in memory."""
    code = _machine_code(text, name)
    packed, pack = struct.pack(f"{len(strides)}q", *strides), struct.Struct(f"{count}Q").pack

    def loop(addresses: Sequence[int], shape: bytes) -> None:
        code.function(pack(*addresses), shape, packed)

    return loop


@lru_cache(maxsize=512)
def _machine_code(text: str, name: str) -> _MachineCode:
    """Compile a text; layers of a model share what comes of it."""
    from llvmlite import binding

    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=3
    )
    module = binding.parse_assembly(text)
    tuning = binding.create_pipeline_tuning_options(speed_level=3)
    tuning.loop_vectorization = tuning.slp_vectorization = True
    passes = binding.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(module, passes)
    engine = binding.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return _MachineCode(engine, ctypes.CFUNCTYPE(None, *[ctypes.c_char_p] * 3)(engine.get_function_address(name)))
