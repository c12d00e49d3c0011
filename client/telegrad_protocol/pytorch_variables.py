"""PyTorch's and CUDA's environment variables: what each means here, who reads it, and what a program is warned of.

``VARIABLES`` is the table of docs/configuration.md. Variables of the client become settings of its sessions; those of
the operator are read where the server starts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

Environment = Mapping[str, str]


class Variable(NamedTuple):
    """One variable. ``reader`` is where it is read, ``meaning`` the text of the documentation.

    ``expected`` says in words what ``accepts`` takes. ``remark`` is what a program is told that sets it, where it
    changes nothing although one might rely on it.
    """

    name: str
    reader: str
    meaning: str
    expected: str
    accepts: Callable[[str], object]
    remark: str = ""


def _switch(name: str, reader: str, meaning: str, remark: str = "") -> Variable:
    return Variable(name, reader, meaning, "0 or 1", {"0", "1"}.__contains__, remark)


def _number(name: str, reader: str, meaning: str) -> Variable:
    return Variable(name, reader, meaning, "a whole number", _WHOLE, "")


def _text(name: str, reader: str, meaning: str, remark: str = "") -> Variable:
    return Variable(name, reader, meaning, "text", str, remark)


_WHOLE: Final = re.compile(r"\d{1,18}").fullmatch
_WORKSPACES: Final = re.compile(r"(:\d{1,9}:\d{1,9})+").fullmatch
_OPERATORS: Final = "the allocator is the server's: its operator sets TELEGRAD_ALLOC_CONF"
_NOT_COMPILED: Final = (
    "nothing is traced here: torch.compile sends what a function queues as a program, and torch._dynamo.explain "
    "names graph breaks"
)

VARIABLES: Final = (
    _text(
        "PYTORCH_ALLOC_CONF",
        "server",
        "the allocator's options, where `TELEGRAD_ALLOC_CONF` is not set; a private server takes the program's",
        _OPERATORS,
    ),
    _text("PYTORCH_CUDA_ALLOC_CONF", "server", "the same, where `PYTORCH_ALLOC_CONF` is not set either", _OPERATORS),
    _switch(
        "PYTORCH_NO_CUDA_MEMORY_CACHING",
        "nobody",
        "refused with a warning: the allocator always caches",
        "the server's allocator always caches; tg.cuda.empty_cache() gives memory back",
    ),
    _switch(
        "CUDA_LAUNCH_BLOCKING",
        "client, server",
        "`1`: every call waits for its result, as with `TELEGRAD_LAUNCH_BLOCKING`; "
        "in the server's environment the driver waits for every kernel of every session",
    ),
    _switch(
        "PYTORCH_NVML_BASED_CUDA_CHECK",
        "nobody",
        "accepted: `cuda.is_available()` never initialises CUDA in the program, which may always fork",
    ),
    _switch(
        "TORCH_BLAS_PREFER_CUBLASLT", "client", '`1`: `backends.cuda.preferred_blas_library()` begins as `"cublaslt"`'
    ),
    _switch("TORCH_LINALG_PREFER_CUSOLVER", "nobody", "accepted: cuSOLVER is what the server uses"),
    _switch("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "client", "`1`: `backends.cuda.matmul.allow_tf32` begins as `True`"),
    _switch(
        "NVIDIA_TF32_OVERRIDE",
        "client, server",
        "`0`: no session of the program computes float32 in TensorFloat-32, whatever its switches say; "
        "in the server's environment none does in NVIDIA's libraries; `1` changes nothing",
    ),
    Variable(
        "CUBLAS_WORKSPACE_CONFIG",
        "server",
        "cuBLAS in the workers reads it; a program need not set it: with `use_deterministic_algorithms(True)` products "
        "are the same every time",
        "':size:count', such as ':4096:8'",
        _WORKSPACES,
    ),
    _switch(
        "TORCH_USE_CUDA_DSA",
        "nobody",
        "accepted: kernels always check indices, and the error names the line of the program",
    ),
    _switch(
        "PYTORCH_TUNABLEOP_ENABLED",
        "client",
        "`1`: `cuda.tunable` begins enabled; `..._TUNING`, `..._FILENAME`, `..._MAX_TUNING_DURATION_MS` and "
        "`..._MAX_TUNING_ITERATIONS` likewise",
    ),
    _switch("PYTORCH_TUNABLEOP_TUNING", "client", "`0`: nothing new is measured"),
    _number("PYTORCH_TUNABLEOP_MAX_TUNING_DURATION_MS", "client", "for how many milliseconds each way is measured"),
    _number("PYTORCH_TUNABLEOP_MAX_TUNING_ITERATIONS", "client", "how often each way is run to measure it"),
    _text("PYTORCH_TUNABLEOP_FILENAME", "client", "the file of `cuda.tunable.write_file` and `read_file`"),
    _switch(
        "TORCH_SHOW_DISPATCH_TRACE",
        "nobody",
        "refused with a warning: `utils.dispatch_trace.show()` traces a block",
        "no trace is printed; a block of telegrad.utils.dispatch_trace.show() prints one",
    ),
    _text(
        "TORCH_LOGS",
        "client",
        "what compiled functions tell: `graph_breaks`, `recompiles`, `output_code` and others (docs/compile.md)",
    ),
    _text("TORCHINDUCTOR_CACHE_DIR", "nobody", "accepted: nothing is compiled in the program, so there is no cache"),
    _switch(
        "TORCHINDUCTOR_MAX_AUTOTUNE",
        "nobody",
        "refused with a warning: what a program repeats is optimised by the server",
        _NOT_COMPILED,
    ),
    _text(
        "CUDA_VISIBLE_DEVICES",
        "server",
        "the GPUs that the server has, `cuda:0` and on; a program asks for a number of them with `connect(gpus=)`",
    ),
    _text("TORCH_HOME", "client", "folder of `hub`'s downloads, by default `~/.cache/torch`"),
)
ALLOCATOR_VARIABLES: Final = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""Those with the allocator's options; the first that is set counts."""
_TF32: Final = ("allow_tf32", "cudnn_allow_tf32")
_TUNABLE: Final = ("ENABLED", "TUNING", "MAX_TUNING_DURATION_MS", "MAX_TUNING_ITERATIONS")


def is_blocking(environ: Environment = os.environ) -> bool:
    """Whether every call is to wait for its result."""
    return any(environ.get(name, "0") not in ("", "0") for name in ("TELEGRAD_LAUNCH_BLOCKING", "CUDA_LAUNCH_BLOCKING"))


def initial_settings(environ: Environment = os.environ) -> dict[str, Any]:
    """Return the settings that begin otherwise than by default; values that are not understood change nothing."""
    chosen: dict[str, Any] = {}
    if environ.get("TORCH_BLAS_PREFER_CUBLASLT") == "1":
        chosen["preferred_blas_library"] = "cublaslt"
    if environ.get("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE") == "1":
        chosen["allow_tf32"] = True
    texts = [environ.get(f"PYTORCH_TUNABLEOP_{name}", "") for name in _TUNABLE]
    if any(texts):
        enabled, tunes, *counts = texts
        numbers = [
            int(text) if _WHOLE(text) else default for text, default in zip(counts, TUNABLE_DEFAULT[2:], strict=True)
        ]
        chosen["tunable"] = (enabled == "1", tunes != "0", *numbers)
    return chosen


TUNABLE_DEFAULT: Final = (False, True, 30, 100)
"""Whether products choose the fastest way, whether new ones are measured, for how many milliseconds, and how often."""


def fixed_settings(environ: Environment = os.environ) -> dict[str, Any]:
    """Return the settings that a program cannot change."""
    return dict.fromkeys(_TF32, False) if environ.get("NVIDIA_TF32_OVERRIDE") == "0" else {}


def complaints(is_private: bool, environ: Environment) -> Iterator[str]:
    """Yield what there is to say about variables that are not understood, or that change nothing.

    ``is_private``: the program's own server reads the environment, too.
    """
    for variable in VARIABLES:
        value = environ.get(variable.name, "")
        if not value:
            continue
        if not variable.accepts(value):
            yield f"{variable.name}: {value!r} is ignored, expected {variable.expected}"
        elif variable.remark and value != "0" and not (is_private and variable.reader == "server"):
            yield f"{variable.name}={value} changes nothing: {variable.remark}"
