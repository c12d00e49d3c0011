"""Operators of a program's own, under the names of ``torch.library``: they behave as built-in ones do.

A kernel is Python that runs in this process and computes with tensors of the server, so that calls wait for nothing
unless the kernel reads elements. docs/custom-operators.md shows all of it.
"""

from __future__ import annotations

from telegrad._library import effects as _effects
from telegrad._library import libraries as _libraries
from telegrad._library.custom_ops import CustomOpDef, custom_op
from telegrad._library.libraries import Library
from telegrad._library.opcheck import OpCheckError, opcheck
from telegrad._library.operator_entry import fallthrough_kernel
from telegrad._library.registration import (
    define,
    get_kernel,
    impl,
    impl_abstract,
    register_autocast,
    register_autograd,
    register_fake,
    register_kernel,
    register_torch_dispatch,
    register_vmap,
)
from telegrad._library.rules.fakes import get_ctx
from telegrad._library.schemas.annotations import infer_schema
from telegrad._library.triton_ops import triton_op, wrap_triton

__all__ = [
    "CustomOpDef", "Library", "OpCheckError", "custom_op", "define", "fallthrough_kernel", "get_ctx", "get_kernel",
    "impl", "impl_abstract", "infer_schema", "opcheck", "register_autocast", "register_autograd", "register_fake",
    "register_kernel", "register_torch_dispatch", "register_vmap", "triton_op", "wrap_triton",
]  # fmt: skip
_scoped_library = _libraries._scoped_library
_register_effectful_op = _effects._register_effectful_op
