"""Layers, losses and their functions, as in ``torch.nn``.

``modules`` has the layers and what ``Module`` itself is; ``functional`` the functions that they call; ``parameter``,
``init`` and ``utils`` work on parameters. Files that begin with an underscore are what layers share.
"""

from __future__ import annotations

from typing import Any

from telegrad_protocol.errors import ArgumentTypeError

from . import attention as attention
from . import functional as functional
from . import grad as grad
from . import init as init
from . import modules as modules
from . import parallel as parallel
from . import parameter as parameter
from . import utils as utils
from .modules import *  # noqa: F403 - each of its files says in ``__all__`` what users find
from .parallel import DataParallel as DataParallel
from .parameter import Buffer as Buffer
from .parameter import Parameter as Parameter
from .parameter import UninitializedBuffer as UninitializedBuffer
from .parameter import UninitializedParameter as UninitializedParameter

_FACTORY_ARGUMENTS = ("device", "dtype", "memory_format")


def factory_kwargs(kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """Return the arguments for functions that make tensors, checked; ``factory_kwargs`` in them adds its own."""
    if kwargs is None:
        return {}
    unknown = kwargs.keys() - {*_FACTORY_ARGUMENTS, "factory_kwargs"}
    if unknown:
        raise ArgumentTypeError(f"unexpected kwargs {sorted(unknown)}")
    chosen = dict(kwargs.get("factory_kwargs", {}))
    for name in _FACTORY_ARGUMENTS:
        if name in kwargs:
            if name in chosen:
                raise ArgumentTypeError(f"{name} specified twice, in **kwargs and in factory_kwargs")
            chosen[name] = kwargs[name]
    return chosen
