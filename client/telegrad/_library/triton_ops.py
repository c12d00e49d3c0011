"""``triton_op`` and ``wrap_triton``: operators whose function launches Triton kernels.

Nothing is traced here, so that such an operator is a custom operator for all devices, and a kernel is what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .custom_ops import custom_op


def triton_op(
    name: str, fn: Callable[..., Any] | None = None, /, *, mutates_args: str | Iterable[str], schema: str | None = None
) -> Any:
    """Return the operator ``name`` whose function launches Triton kernels; a decorator without a function.

    The function also tells shapes: on tensors of the meta device its kernels compute nothing.
    """

    def define(function: Callable[..., Any]) -> Any:
        made = custom_op(name, function, mutates_args=mutates_args, schema=schema)
        made.register_fake(function)
        return made

    return define if fn is None else define(fn)


def wrap_triton(triton_kernel: Any, /) -> Any:
    """Return a Triton kernel as it is: it is launched in an operator as everywhere."""
    return triton_kernel
