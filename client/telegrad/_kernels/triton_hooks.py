"""What is put into Triton when a program imports it: our driver, for calls that are given telegrad's tensors.

Where this machine has a GPU and PyTorch itself, calls without our tensors go on as they did.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import triton
from triton import knobs
from triton.compiler import compiler
from triton.runtime import autotuner, driver, jit

from telegrad._session.own_code import count_as_own
from telegrad._tensor.tensor import Tensor

from . import triton_bench, triton_prepared
from .remote_kernel import has_elements, place_of
from .triton_driver import RemoteDriver, placed
from .triton_launcher import Pointer

_remote = RemoteDriver()
_config: Any = driver
_runtime, _compilation = knobs.runtime, knobs.compilation


def install() -> None:
    """Let Triton's functions take telegrad's tensors."""
    count_as_own(os.path.dirname(triton.__file__))
    module = sys.modules[type(_config).__module__]
    module._create_driver = _choosing(module._create_driver)  # type: ignore[attr-defined]
    jit.JITFunction.run = _prepared(_on_tensors(jit.JITFunction.run, wraps=True))
    autotuner.Autotuner.run = _on_tensors(autotuner.Autotuner.run, wraps=False)
    compiler.CompiledKernel._init_handles = _noting(compiler.CompiledKernel._init_handles)
    testing = sys.modules.get("triton.testing")
    if testing is not None:
        install_bench(testing)


def install_bench(testing: Any) -> None:
    """Let ``triton.testing`` time kernels by the server's events while our driver is the active one."""
    for name in ("do_bench", "do_bench_cudagraph"):
        setattr(testing, name, _timing(getattr(testing, name)))


def _choosing(create: Callable[[], Any]) -> Callable[[], Any]:
    """Return what chooses Triton's driver: ours, unless PyTorch itself has a GPU here."""

    def create_driver() -> Any:
        torch = sys.modules.get("torch")
        is_own = torch is None or type(torch).__name__ == "TorchModule"
        if not is_own and torch is not None and torch.cuda.is_available():
            return create()
        return _remote

    return create_driver


def _on_tensors(run: Callable[..., Any], wraps: bool) -> Callable[..., Any]:
    """Return ``run``, with our driver the active one where our tensors are among the arguments.

    With ``wraps`` it gets them as what Triton specialises on.
    """

    @functools.wraps(run)
    def run_remotely(self: Any, *args: Any, **kwargs: Any) -> Any:
        where = place_of(args) or place_of(kwargs.values())
        if where is None:
            tensors = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, Tensor)]
            is_shape = bool(tensors) and not all(map(has_elements, tensors))
            return None if is_shape else run(self, *args, **kwargs)  # there are no elements to compute
        if wraps:
            args = tuple([_wrapped(arg) for arg in args])
            kwargs = {name: _wrapped(arg) for name, arg in kwargs.items()}
        with placed(where):
            if _config._active is _remote:
                return run(self, *args, **kwargs)
            before, _config._active = _config._active, _remote
            try:
                return run(self, *args, **kwargs)
            finally:
                _config._active = before

    return run_remotely


def _prepared(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``run``, which makes launches like one that came before without Triton."""

    @functools.wraps(run)
    def run_prepared(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if warmup or _is_observed():
            return run(self, *args, grid=grid, warmup=warmup, **kwargs)
        kernel = triton_prepared.launch(self, grid, args, kwargs)
        if kernel is None:
            triton_prepared.noted.done = None
            kernel = run(self, *args, grid=grid, warmup=warmup, **kwargs)
            triton_prepared.remember(self, kernel, args, kwargs)
        return kernel

    return run_prepared


def _is_observed() -> bool:
    """Tell whether Triton's settings were changed by the program, which may concern every launch, or a hook waits."""
    runtime = _runtime
    hooks = runtime.launch_enter_hook.calls or runtime.launch_exit_hook.calls
    return bool(hooks or runtime.__dict__ or _compilation.__dict__)


def _wrapped(arg: Any) -> Any:
    if isinstance(arg, Tensor):
        return Pointer(arg)
    if type(arg) is tuple:
        return tuple([_wrapped(item) for item in arg])
    return arg


def _noting(load: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return ``load``, during which our driver knows which kernel it loads."""

    @functools.wraps(load)
    def load_noted(self: Any) -> None:
        if self.module is None and _config.active is _remote:
            with _remote.loading(self):
                load(self)
        else:
            load(self)

    return load_noted


def _timing(bench: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(bench)
    def timed(*args: Any, **kwargs: Any) -> Any:
        return (triton_bench.do_bench if _config.active is _remote else bench)(*args, **kwargs)

    return timed
