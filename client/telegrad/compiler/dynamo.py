"""What programs use of ``torch._dynamo``: ``explain``, ``graph_break``, ``reset``, decorators, and settings."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from telegrad._tensor.tensor import Tensor

from . import allow_in_graph as allow_in_graph
from . import assume_constant_result as assume_constant_result
from . import compile as compile
from . import disable as disable
from . import exc as exc
from . import is_compiling as is_compiling
from . import list_backends as list_backends
from . import regions
from . import reset as reset
from . import set_stance as set_stance
from . import substitute_in_graph as substitute_in_graph
from .backends import lookup_backend as lookup_backend
from .backends import register_backend as register_backend
from .break_errors import error_on_graph_break as error_on_graph_break
from .breaks import Unsupported as Unsupported
from .config import dynamo_config
from .counters import counters as counters
from .dynamo_parts.exports import ExportResult as ExportResult
from .dynamo_parts.exports import export as export
from .dynamo_parts.leaf_functions import leaf_function as leaf_function
from .explanation import ExplainOutput as ExplainOutput
from .explanation import explain as explain
from .optimized_module import OptimizedModule as OptimizedModule

config = dynamo_config


def optimize(backend: Any = None, *, nopython: bool = False, dynamic: bool | None = None, **options: Any) -> Any:
    """Return ``torch.compile`` as a decorator; with ``nopython`` a graph break is an error."""
    return functools.partial(compile, backend=backend, fullgraph=nopython, dynamic=dynamic)


def optimize_assert(backend: Any = None, **options: Any) -> Any:
    """Return ``torch.compile`` as a decorator; a graph break is an error."""
    return optimize(backend, nopython=True, **options)


def run(fn: Any = None) -> Any:
    """Return the function as it is: nothing is compiled again."""
    return allow_in_graph if fn is None else fn


nonstrict_trace = dont_skip_tracing = allow_in_graph
disallow_in_graph = forbid_in_graph = skip = disable
reset_code_caches = reset
patch_dynamo_config = config.patch


def is_dynamo_disable_recursive(method: Any) -> bool | None:
    """Return None for a function that is compiled, else True: what it calls is not compiled either."""
    return True if getattr(method, "_torchdynamo_disable", False) else None


def skip_frame(msg: str = "") -> None:
    """End a program here: what follows is another one."""
    graph_break(msg)


step_unsupported = skip_frame


def override_cudagraphs(fwd: bool | None = None, bwd: bool | None = None) -> Any:
    """Return a block that changes nothing: the server captures graphs by itself."""
    return nullcontext()


def set_recursion_limit(limit: int) -> None:
    """Set how deep calls may be nested."""
    sys.setrecursionlimit(limit)


def graph_break(msg: str = "") -> None:
    """End a program here, where a compiled function calls this, and begin another one."""
    region = regions.active.region
    if region is not None:
        region.split(f"graph_break() was called{f': {msg}' if msg else ''}")


def mark_dynamic(t: Any, index: int | Sequence[int], **options: Any) -> None:
    """Note that a dimension of a tensor varies: a backend of the program's own is given one graph for its sizes."""
    _note_dimensions(t, index, "_dynamo_dynamic_indices", "_dynamo_static_indices")


maybe_mark_dynamic = mark_unbacked = mark_dynamic


def mark_static(t: Any, index: int | Sequence[int] | None = None) -> None:
    """Note that dimensions of a tensor, all unless some are given, do not vary: each of their sizes is a graph.

    What is no tensor, such as a class of modules, has no dimensions to be noted.
    """
    if isinstance(t, Tensor):
        given = range(t.ndim) if index is None else index
        _note_dimensions(t, given, "_dynamo_static_indices", "_dynamo_dynamic_indices")


def _note_dimensions(t: Any, index: int | Sequence[int], kind: str, other: str) -> None:
    """Note dimensions of a tensor as of one kind, and no longer as of another one."""
    indices = [index] if isinstance(index, int) else index
    vars(t).setdefault(kind, set()).update(indices)
    vars(t).get(other, set()).difference_update(indices)


def mark_static_address(t: Any, *args: Any, **options: Any) -> None:
    """Do nothing: tensors that a program takes have their addresses on the server."""


class TransformGetItemToIndex:
    """A block in which a compiler would read indices as tensors; here it changes nothing."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *raised: object) -> None:
        pass


def is_dynamo_supported() -> bool:
    """Whether functions can be compiled: they can."""
    return True


def is_compile_supported(device_type: str) -> bool:
    """Whether functions on this type of device can be compiled: they can."""
    return True
