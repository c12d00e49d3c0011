"""The functions, by what they are about; importing this package enters them all into the cases."""

from __future__ import annotations

from . import breaks as breaks
from . import forwards as forwards
from . import memory as memory
from . import modes as modes
from . import objects as objects
from . import own_passes as own_passes
from . import states as states
from . import structures as structures
from . import training as training
