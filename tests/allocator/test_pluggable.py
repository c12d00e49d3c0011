"""Segments come from two functions that somebody else wrote; everything else is the cache's."""

from __future__ import annotations

import ctypes
import ctypes.util
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from server.allocator import AllocatorConfig, CachingAllocator, SimulatedUpstream
from server.allocator.core.sizes import MIB
from server.allocator.upstream.pluggable import ALLOC, FREE, VARIABLE, PluggableUpstream, plugged_in
from telegrad_protocol.errors import ConfigurationError, OutOfMemoryError

COMPILER = shutil.which("cc") or shutil.which("gcc")
LIBRARY = """
#include <stdlib.h>
#include <sys/types.h>
static ssize_t held;
void *obtain(ssize_t size, int device, void *stream) { held += size; return malloc(size); }
void give_back(void *pointer, ssize_t size, int device, void *stream) { held -= size; free(pointer); }
ssize_t held_bytes(void) { return held; }
"""


class Functions:
    """A device of 100 MiB behind two C functions."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int, int]] = []
        self.held: dict[int, np.ndarray] = {}
        self.alloc, self.free = ALLOC(self._alloc), FREE(self._free)
        self.addresses = [ctypes.cast(each, ctypes.c_void_p).value or 0 for each in (self.alloc, self.free)]

    def _alloc(self, size: int, device: int, stream: int | None) -> int | None:
        self.calls.append(("alloc", size, device, stream or 0))
        if size + sum(map(len, self.held.values())) > 100 * MIB:
            return None
        memory = np.empty(size, np.uint8)
        self.held[memory.ctypes.data] = memory
        return int(memory.ctypes.data)

    def _free(self, pointer: int, size: int, device: int, stream: int | None) -> None:
        self.calls.append(("free", size, device, stream or 0))
        assert len(self.held.pop(pointer)) == size


def test_segments_come_from_the_functions_and_go_back_to_them() -> None:
    functions, behind = Functions(), SimulatedUpstream(1 << 40)
    allocator = CachingAllocator(PluggableUpstream(behind, *functions.addresses, 3))
    block = allocator.allocate(1000, 7, 1)
    assert functions.calls == [("alloc", 2 * MIB, 3, 7)] and block.pointer in functions.held
    pointer = block.pointer
    with pytest.raises(OutOfMemoryError):
        allocator.allocate(200 * MIB, 7, 1)
    allocator.free(block)
    again = allocator.allocate(1000, 7, 1)
    assert again.pointer == pointer and len(functions.held) == 1
    allocator.free(again)
    allocator.empty_cache()
    assert not functions.held and functions.calls[-1] == ("free", 2 * MIB, 3, 7)
    assert not behind.live


def test_the_rest_is_left_to_the_upstream_behind() -> None:
    functions, behind = Functions(), SimulatedUpstream(1 << 30)
    allocator = CachingAllocator(
        PluggableUpstream(behind, *functions.addresses), AllocatorConfig(expandable_segments=True)
    )
    allocator.free(allocator.allocate(1000, 0, 1))
    assert behind.live and not functions.calls
    allocator.empty_cache()
    assert not behind.live and not behind.reserved


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
def test_a_library_is_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, library = tmp_path / "pool.c", tmp_path / "pool.so"
    source.write_text(LIBRARY)
    subprocess.run([str(COMPILER), "-shared", "-fPIC", "-o", library, source], check=True)
    behind = SimulatedUpstream(1 << 30)
    assert plugged_in(behind) is behind
    monkeypatch.setenv(VARIABLE, f"{library}:obtain:give_back")
    allocator = CachingAllocator(plugged_in(behind))
    held_bytes = ctypes.CDLL(str(library)).held_bytes
    held_bytes.restype = ctypes.c_ssize_t
    allocator.free(allocator.allocate(5 * MIB, 0, 1))
    assert held_bytes() == 20 * MIB
    allocator.empty_cache()
    assert held_bytes() == 0


@pytest.mark.parametrize("text", ["pool.so", "pool.so:alloc", "/nowhere/pool.so:alloc:free"])
def test_a_library_that_is_not_there_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ConfigurationError, match=VARIABLE):
        plugged_in(SimulatedUpstream(1 << 30))


def test_a_function_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"{ctypes.util.find_library('c')}:malloc:no_such_function")
    with pytest.raises(ConfigurationError, match="no_such_function"):
        plugged_in(SimulatedUpstream(1 << 30))
