"""What programs use of ``torch._dynamo``: settings, ``reset`` and decorators, all without an effect."""

from __future__ import annotations

from typing import Any, NoReturn

from telegrad_protocol.errors import NotSupportedError

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


def explain(f: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Refuse: nothing is compiled, so there is nothing to explain."""
    raise NotSupportedError(
        "explain: nothing is compiled; cuda.set_sync_debug_mode('warn') names the lines that wait for the server"
    )


class TransformGetItemToIndex:
    """A block in which a compiler would read indices as tensors; here it changes nothing."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *raised: object) -> None:
        pass
