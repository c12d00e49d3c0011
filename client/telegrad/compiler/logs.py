"""``torch._logging``: what compiled functions tell on the standard error stream, by the names of PyTorch's logs.

``TORCH_LOGS`` or ``set_logs`` choose. What PyTorch's compiler has and programs have not, such as bytecode, is accepted
and tells nothing.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from telegrad_protocol.errors import ArgumentError, ArgumentTypeError

TOLD: Final = {
    "graph_breaks": "where a compiled function waits for the server, so that a program ends there, and why",
    "recompiles": "when a function queues another sequence, or a program is specialised for another situation, and why",
    "graph_code": "the operations of each new program",
    "guards": "the situation that each new specialisation is for",
    "output_code": "the steps of each new specialisation, and the loops or CUDA C++ that were generated for it",
    "fusion": "which operations of a new specialisation are one kernel, kernels before and after, and memory",
    "perf_hints": "why a program goes on as instructions",
}
"""The artifacts that something is told of."""
_SAME: Final = {
    "recompiles_verbose": "recompiles", "kernel_code": "output_code", "graph": "graph_code",
    "graph_code_verbose": "graph_code", "aot_graphs": "graph_code", "verbose_guards": "guards",
}  # fmt: skip
_SILENT: Final = frozenset(
    (
        "annotation", "aot_graphs_effects", "aot_joint_graph", "async_compile", "auto_chunker", "autotuning",
        "benchmarking", "bytecode", "cache", "caching", "compiled_autograd", "compiled_autograd_verbose",
        "compute_dependencies", "cudagraph_static_inputs", "cudagraphs", "ddp_graphs", "graph_region_expansion",
        "graph_sizes", "hierarchical_compile", "incremental", "inductor_metrics", "ir_post_fusion",
        "ir_pre_fusion", "loop_ordering", "loop_tiling", "native_dsl", "node_runtime_estimation",
        "not_implemented", "onnx_diagnostics", "overlap", "overlap_scheduling", "post_grad_graphs",
        "pre_grad_graphs", "schedule", "side_effects", "sym_node", "trace_bytecode", "trace_call",
        "trace_shape_events", "trace_source",
    )
)  # fmt: skip
_LOGS: Final = frozenset(
    (
        "all", "aot", "autograd", "c10d", "ddp", "distributed", "dtensor", "dynamic", "dynamo", "export",
        "fake_tensor", "fsdp", "inductor", "onnx", "pp", "torch",
    )
)  # fmt: skip
ARTIFACTS: Final = frozenset((*TOLD, *_SAME, *_SILENT))
_LEVELS: Final = (logging.CRITICAL, logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG, logging.NOTSET)
_VARIABLE: Final = "TORCH_LOGS"

enabled: Final[set[str]] = set()
"""The names among ``TOLD`` that are told."""
_logger: Final = logging.getLogger("telegrad.compiler")


def set_logs(*, modules: Mapping[str, int | bool] | None = None, **settings: Any) -> None:
    """Choose what is told: artifacts such as ``graph_breaks`` are True or False, logs such as ``dynamo`` have levels.

    What was chosen before is forgotten. ``modules`` has more names. ``all`` at level ``DEBUG`` is everything. Does
    nothing where ``TORCH_LOGS`` is set. Raises ArgumentTypeError for an unknown name, ArgumentError for one among
    ``modules``, for an artifact that is not a bool, and for a level that there is not.
    """
    for name in settings:
        if name not in ARTIFACTS and name not in _LOGS:
            raise ArgumentTypeError(f"set_logs() got an unexpected keyword argument {name!r}")
    if _VARIABLE in os.environ:
        _logger.warning("Using TORCH_LOGS environment variable for log settings, ignoring call to set_logs")
        return
    chosen: set[str] = set()
    for name, value in {**settings, **(modules or {})}.items():
        if value is not None:
            chosen |= _chosen(name, value)
    _choose(chosen)


def _chosen(name: str, value: Any) -> set[str]:
    """Return what one setting chooses of ``TOLD``."""
    if name in ARTIFACTS:
        if not isinstance(value, bool):
            raise ArgumentError(f"Expected bool to enable artifact {name}, received {value}")
        return {_SAME.get(name, name)} & TOLD.keys() if value else set()
    if name not in _LOGS and not name.startswith("torch."):
        raise ArgumentError(f"Unrecognized log or artifact name passed to set_logs: {name}")
    if value not in _LEVELS or isinstance(value, bool):
        levels = ",".join(map(str, _LEVELS))
        raise ArgumentError(f"Unrecognized log level for log {name}: {value}, valid level values are: {levels}")
    return set(TOLD) if name == "all" and value == logging.DEBUG else set()


def _of_variable(text: str) -> set[str]:
    """Return what ``TORCH_LOGS`` chooses of ``TOLD``."""
    chosen: set[str] = set()
    for part in filter(None, text.replace(" ", "").split(",")):
        name = part.lstrip("+-")
        if name == "help":
            raise ArgumentError("\n".join([f"{_VARIABLE}: names with commas between them", *_descriptions()]))
        if name not in ARTIFACTS and name not in _LOGS and not name.startswith("torch."):
            raise ArgumentError(
                f"Invalid log settings: {text}, must be a comma separated list of fully\nqualified module names, "
                "registered log names or registered artifact names.\nFor more info on various settings, try "
                f'TORCH_LOGS="help"\nValid settings:\n{", ".join(sorted(ARTIFACTS | _LOGS))}'
            )
        if name in ARTIFACTS:
            chosen |= _chosen(name, not part.startswith("-"))
        elif part == "+all":
            chosen |= set(TOLD)
    return chosen


def _descriptions() -> list[str]:
    return [f"{name}: {meaning}" for name, meaning in TOLD.items()]


def _choose(chosen: set[str]) -> None:
    enabled.clear()
    enabled.update(chosen)
    for handler in list(_logger.handlers):
        _logger.removeHandler(handler)
    if chosen:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_Formatter())
        _logger.addHandler(handler)
        _logger.setLevel(logging.DEBUG)
        _logger.propagate = False


class _Formatter(logging.Formatter):
    """Puts level, time, thread, line and artifact before each line, as PyTorch does."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created).strftime("%m%d %H:%M:%S.%f")
        artifact = f" [__{record.__dict__['artifact']}]" if "artifact" in record.__dict__ else ""
        level = "V" if artifact else record.levelname[0]
        where = f"{os.path.basename(record.pathname)}:{record.lineno}"
        prefix = f"{level}{when} {threading.get_native_id()} {where}]{artifact}"
        return "\n".join([f"{prefix} {line}" for line in record.getMessage().split("\n")])


def tell(artifact: str, text: str) -> None:
    """Tell something of an artifact that is among ``enabled``."""
    _logger.debug("%s", text, extra={"artifact": artifact}, stacklevel=2)


def getArtifactLogger(module_qname: str, artifact_name: str) -> logging.Logger:
    """Return a logger for messages of a program's own; ArgumentError for an unknown artifact."""
    if artifact_name not in ARTIFACTS:
        raise ArgumentError(f"Artifact name: {artifact_name} not registered, please call register_artifact")
    return logging.getLogger(f"{module_qname}.__{artifact_name}")


if _VARIABLE in os.environ:
    _choose(_of_variable(os.environ[_VARIABLE]))
