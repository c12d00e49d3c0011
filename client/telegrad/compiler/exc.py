"""``torch._dynamo.exc``: PyTorch's exceptions, so that programs can catch them; most are never raised."""

from __future__ import annotations

from typing import Any

from .breaks import InvalidBackend as InvalidBackend
from .breaks import TorchDynamoException as TorchDynamoException
from .breaks import Unsupported as Unsupported


class UserError(Unsupported):
    """Is never raised: no function is traced."""


class InternalTorchDynamoError(TorchDynamoException):
    """Is never raised: no function is traced."""


class TorchRuntimeError(TorchDynamoException):
    """Is never raised: what an operation raises, a compiled function raises as it is."""


class BackendCompilerFailed(TorchDynamoException):
    """A backend of the program's own has failed; ``inner_exception`` is what it has raised."""

    def __init__(self, backend_fn: Any, inner_exception: Exception) -> None:
        self.backend_name = getattr(backend_fn, "__name__", "?")
        self.inner_exception = inner_exception
        super().__init__(f"backend={self.backend_name!r} raised:\n{type(inner_exception).__name__}: {inner_exception}")


class RecompileLimitExceeded(Unsupported):
    """Is never raised; ``FailOnRecompileLimitHit`` is."""


class FailOnRecompileLimitHit(Exception):
    """A backend of the program's own was given ``recompile_limit`` graphs of a function with ``fullgraph=True``."""


class RecompileError(TorchDynamoException):
    """A backend of the program's own would be given another graph, and ``config.error_on_recompile`` is set."""
