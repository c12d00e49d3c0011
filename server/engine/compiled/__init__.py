"""Loops that Numba compiles to machine code for this processor, where NumPy would need many passes (0037).

``kernels()`` is a module with them, or None until they are there: a process of its own compiles them once, into the
cache on the disk, and the functions of NumPy serve meanwhile, as they do for small operands. ``MODULES`` are loaded one
by one, when they are first asked for. They and what they import are the only modules that import Numba, and nothing
else imports them.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import importlib.util
import logging
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, Final

from server.kernel_cache import kernels_directory

CHAINS: Final = (
    ("fourier", "lanes", "single_signals", "sides"),
    ("loops", "blas", *[f"factorizations.{name}" for name in ("spectra", "eigenvectors", "matrices", "orthogonal")]),
    ("factorizations.interleaved",),
    *[(f"images.{name}",) for name in ("products", "planes", "pooling", "channels")],
    *[(f"tensors.{name}",) for name in ("broadcasts", "scatters", "pairs", "norms", "small_products")],
    *[(name,) for name in ("elementwise", "rows", "pool", "calls", "philox")],
    ("factorizations.routines", "factorizations.sequences"),
)  # fmt: skip
"""One process compiles modules that import one another, or two would compile the same; the longest come first."""
MODULES: Final = tuple(chain.from_iterable(CHAINS))
LEAST: Final = 1 << 14
"""Elements of the result from which on compiled loops are used."""
SETTING: Final = "TELEGRAD_COMPILED_KERNELS"
_LOADS_AFTER: Final = 100
"""Runs of small operations after which loading loops is worth the time that it takes once."""
_SECONDS: Final = 0.25
"""How often it is looked whether the other process is done."""

log = logging.getLogger(__name__)

_loaded: dict[str, Any] = {}
_next_look = 0.0
_process: subprocess.Popen[bytes] | None = None


def kernels(name: str = "loops") -> Any:
    """A module of compiled loops, or None as long as NumPy is to be used."""
    loaded = _loaded.get(name)
    return loaded if loaded is not None or time.monotonic() < _next_look else _look(name)


def loaded(name: str) -> Any:
    """The same module if it has been loaded before, else None: for what is not worth the time that loading takes."""
    return _loaded.get(name)


def kernels_after(runs: Iterator[int], name: str) -> Any:
    """The same after so many runs of small operations, which ``runs`` counts, that loading it has been worth it."""
    found = _loaded.get(name)
    return kernels(name) if found is None and next(runs) >= _LOADS_AFTER else found


def _look(name: str) -> Any:
    """Load what is compiled; where it is not, have all of it compiled beside this process."""
    global _next_look, _process
    choice = os.environ.get(SETTING, "beside")
    if choice == "never" or importlib.util.find_spec("numba") is None or (_process and _process.poll()):
        _next_look = float("inf")
        return None
    if choice == "wait" or mark().exists():
        if _process:
            _process.wait()
        return _load_or_do_without(name)
    if _process is None:
        _process = _compile_beside()
    _next_look = time.monotonic() + _SECONDS
    return None


def _load_or_do_without(name: str) -> Any:
    global _next_look
    try:
        return load(name)
    except Exception:  # such as a folder that cannot be written to: NumPy computes the same
        log.warning("the CPU's loops could not be compiled; NumPy computes instead", exc_info=True)
        _next_look = float("inf")
        return None


def _compile_beside() -> subprocess.Popen[bytes] | None:
    nowhere = subprocess.DEVNULL
    with suppress(OSError):
        return subprocess.Popen([sys.executable, "-m", __name__], stdin=nowhere, stdout=nowhere, stderr=nowhere)
    return None


def load(name: str) -> Any:
    """Load a module of loops from the cache, or compile it, which takes seconds."""
    import numba

    before = numba.config.CACHE_DIR, numba.config.CPU_FEATURES
    numba.config.CACHE_DIR = str(_folder())
    numba.config.CPU_FEATURES = numba.config.CPU_FEATURES or vector_features()
    try:
        _loaded[name] = importlib.import_module(f".{name}", __name__)
    finally:  # programs of clients that run here may use Numba for themselves
        numba.config.CACHE_DIR, numba.config.CPU_FEATURES = before
    return _loaded[name]


def vector_features() -> str:
    """The processor's features for LLVM, without its preference for short vectors.

    It has that for all processors with AVX-512, of which only the first ones lower their clock for long vectors.
    """
    from llvmlite import binding

    binding.initialize_native_target()
    features = binding.get_host_cpu_features()
    suffix = ",-prefer-256-bit" if features.get("avx512vbmi2") else ""
    return f"{features.flatten()}{suffix}"


def load_chains(chains: Iterable[Iterable[str]]) -> None:
    """Load modules one after another."""
    for name in chain.from_iterable(chains):
        load(name)


def compile_all(load_them: Callable[[Iterable[Iterable[str]]], None] = load_chains) -> None:
    """Compile all modules into the cache, then note that they are there; servers that start together do it once."""
    with _alone():
        if mark().exists():
            return
        load_them(CHAINS)
        with suppress(OSError):
            mark().touch()


@contextmanager
def _alone() -> Iterator[None]:
    """Wait until no other process compiles into the same cache, where that can be written to."""
    with ExitStack() as stack:
        with suppress(OSError):
            _folder().mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(open(_folder() / "compiling", "w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def mark() -> Path:
    return _folder() / "complete"


def _folder() -> Path:
    """Where the machine code is kept, by all that it depends on."""
    from importlib.metadata import version

    files = sorted(Path(__file__).parent.rglob("*.py"))
    parts = [version("numba"), version("llvmlite"), platform.python_version(), _processor()]
    parts += [f"{file} {file.stat().st_mtime_ns} {file.stat().st_size}" for file in files]
    return kernels_directory() / "host" / hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    with suppress(OSError), open("/proc/cpuinfo") as lines:
        return "".join([line for line in lines if line.startswith(("model name", "flags"))][:2])
    return f"{platform.machine()} {platform.processor()}"
