"""Layers, losses and their functions, as in ``torch.nn``.

``modules`` has the layers and what ``Module`` itself is; ``functional`` the functions that they call; ``parameter``,
``init`` and ``utils`` work on parameters. Files that begin with an underscore are what layers share.
"""

from __future__ import annotations

from . import functional as functional
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
