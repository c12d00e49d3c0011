"""``torch._library`` and its modules: what packages import from there, under one roof."""

from __future__ import annotations

from telegrad._tensor.tensor import Tensor

from .. import effects as effects
from .. import overloads
from ..custom_ops import CustomOpDef as CustomOpDef
from ..custom_ops import custom_op as custom_op
from ..libraries import Library as Library
from ..registry import overload_of, split
from ..rules.fakes import FakeImplCtx as FakeImplCtx
from ..rules.fakes import get_ctx as get_ctx
from ..schemas import types as schema
from ..schemas.annotations import infer_schema as infer_schema
from ..triton_ops import triton_op as triton_op
from ..triton_ops import wrap_triton as wrap_triton

capture_triton = wrap_triton
parse_namespace = split


def lookup_op(qualname: str) -> overloads.OpOverload:
    """Return the overload of a full name. Raises AttributeError if there is none."""
    overload = overload_of(qualname)
    if overload is None:
        raise AttributeError(f"there is no operator {qualname}")
    return overload


def is_builtin(op: overloads.OpOverload) -> bool:
    """Whether an operator is one of PyTorch's own."""
    return op.namespace in ("aten", "prim", "prims")


def is_functional_schema(schema: schema.FunctionSchema, *, allow_valid_view: bool = False) -> bool:
    """Whether an operator writes into nothing, and returns no views."""
    is_view = any(result.alias_info is not None for result in schema.returns)
    return not schema.is_mutable and bool(schema.returns) and (allow_valid_view or not is_view)


def mutates_and_returns_first_arg(op: overloads.OpOverload) -> bool:
    """Whether an operator writes into its first argument alone, and returns that."""
    arguments, returns = op._schema.arguments, op._schema.returns
    if len(returns) != 1 or not arguments or not arguments[0].is_write or returns[0].alias_info is None:
        return False
    return returns[0].alias_info == arguments[0].alias_info and not any(a.alias_info for a in arguments[1:])


def is_tensor_like_type(type: schema.SchemaType) -> bool:
    """Whether a type is that of a tensor, or of an optional one."""
    return type.is_tensor


def is_tensorlist_like_type(type: schema.SchemaType) -> bool:
    """Whether a type is that of a list of tensors."""
    return type.is_tensor_list


def has_tensor_arg(schema: schema.FunctionSchema) -> bool:
    """Whether an operator takes tensors."""
    return any(argument.type.plain == Tensor.__name__ for argument in schema.arguments)
