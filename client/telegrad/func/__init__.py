"""Functions that take functions: derivatives, Jacobians and batches of them, and calls of modules as functions."""

from __future__ import annotations

from ._derivatives import (
    grad as grad,
)
from ._derivatives import (
    grad_and_value as grad_and_value,
)
from ._derivatives import (
    jacrev as jacrev,
)
from ._derivatives import (
    vjp as vjp,
)
from ._forward import (
    hessian as hessian,
)
from ._forward import (
    jacfwd as jacfwd,
)
from ._forward import (
    jvp as jvp,
)
from ._forward import (
    linearize as linearize,
)
from ._modules import (
    debug_unwrap as debug_unwrap,
)
from ._modules import (
    functional_call as functional_call,
)
from ._modules import (
    functionalize as functionalize,
)
from ._modules import (
    replace_all_batch_norm_modules_ as replace_all_batch_norm_modules_,
)
from ._modules import (
    stack_module_state as stack_module_state,
)
from ._rearrange import rearrange as rearrange
from ._vmap import vmap as vmap

__all__ = [
    "debug_unwrap", "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp",
    "linearize", "rearrange", "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap",
]  # fmt: skip
