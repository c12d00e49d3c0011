"""What programs use of ``torch._dynamo``: settings, ``reset`` and decorators, all without an effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import allow_in_graph as allow_in_graph
from . import assume_constant_result as assume_constant_result
from . import compile as compile
from . import disable as disable
from . import is_compiling as is_compiling
from . import list_backends as list_backends
from . import reset as reset
from .config import Config
from .optimized_module import OptimizedModule as OptimizedModule

config = Config.registered("telegrad.compiler.dynamo.config")


def optimize(backend: Any = None, **options: Any) -> Any:
    """Return ``torch.compile`` as a decorator."""
    return compile


def graph_break(msg: str = "") -> None:
    """Do nothing: there is no graph to break."""


def mark_dynamic(tensor: Any, *args: Any, **kwargs: Any) -> None:
    """Do nothing: every shape is taken as it comes."""


mark_static = maybe_mark_dynamic = mark_static_address = mark_unbacked = mark_dynamic


class ExplainOutput:
    """What `explain` tells: there are no graphs, since nothing is compiled."""

    graph_count = graph_break_count = op_count = 0

    def __init__(self) -> None:
        self.graphs: list[Any] = []
        self.break_reasons: list[Any] = []
        self.ops_per_graph: list[Any] = []
        self.out_guards: list[Any] = []

    def __str__(self) -> str:
        return (
            "Graph Count: 0\nGraph Break Count: 0\nOp Count: 0\n"
            "Nothing is compiled: the function ran eagerly. cuda.set_sync_debug_mode('warn') names the lines that wait "
            "for the server, which is what costs time here."
        )


def explain(f: Callable[..., Any], *extra_args: Any, **extra_kwargs: Any) -> Any:
    """Return a function that runs ``f`` and tells of it what PyTorch's compiler would; of no graphs, here."""

    def run(*args: Any, **kwargs: Any) -> ExplainOutput:
        f(*args, **kwargs)
        return ExplainOutput()

    return run(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else run


class TransformGetItemToIndex:
    """A block in which a compiler would read indices as tensors; here it changes nothing."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *raised: object) -> None:
        pass


def is_dynamo_supported() -> bool:
    """Whether Python is traced: it is not."""
    return False


def is_compile_supported(device_type: str) -> bool:
    """Whether functions on this type of device are compiled: they are not."""
    return False
