"""``torch._dynamo.exc``: exceptions of PyTorch's compiler, so that programs can catch them; two of them are raised."""

from __future__ import annotations

from .breaks import InvalidBackend as InvalidBackend
from .breaks import TorchDynamoException as TorchDynamoException
from .breaks import Unsupported as Unsupported


class UserError(Unsupported):
    """Is never raised: no function is traced."""


class InternalTorchDynamoError(TorchDynamoException):
    """Is never raised: no function is traced."""


class BackendCompilerFailed(TorchDynamoException):
    """Is never raised: what cannot be optimised is executed as instructions."""


class RecompileLimitExceeded(Unsupported):
    """Is never raised: nothing is compiled again."""


class FailOnRecompileLimitHit(TorchDynamoException):
    """Is never raised: nothing is compiled again."""
