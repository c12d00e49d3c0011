"""Marks of the operators of PyTorch's own library, worked out from their schemas and from telegrad's contracts.

``core`` is no such mark: it tells to which operators PyTorch's own compilers reduce the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from telegrad_protocol.ops import PUBLIC

from .schemas.tags import Tag
from .schemas.types import FunctionSchema

_SHAPED_BY_DATA: Final = frozenset((
    "_ctc_loss", "_unique", "_unique2", "index", "linalg_lstsq", "one_hot", "unique_consecutive", "unique_dim",
    "unique_dim_consecutive",
))  # fmt: skip
"""Operators without a contract of their own the shapes of whose results depend on elements."""
_READING: Final = frozenset(("_local_scalar_dense", "allclose", "equal", "item"))
"""Operators that return what elements are, as numbers of the program."""
_DRAWING: Final = frozenset(("dropout", "dropout_p", "generator"))
"""Names of arguments of operators that draw numbers."""
_VIEWING: Final = frozenset((
    "as_strided_", "detach_", "resize_", "resize_as_", "set_", "squeeze_", "swapaxes_", "swapdims_", "t_",
    "transpose_", "unsqueeze_",
))  # fmt: skip
"""Operators that change how a tensor lies in memory, and none of its elements."""

_REDUCING: Final = frozenset((
    "all", "amax", "amin", "aminmax", "any", "argmax", "argmin", "count_nonzero", "linalg_vector_norm", "logsumexp",
    "max", "mean", "min", "nansum", "norm", "prod", "std", "std_mean", "sum", "var", "var_mean",
))  # fmt: skip
_POINTWISE: Final = frozenset((
    "__ilshift__", "__ixor__", "__lshift__", "__rshift__", "__xor__", "_conj_physical", "clip", "clone", "float_power",
    "frexp", "gelu_backward", "ldexp", "logit_backward", "masked_fill", "mvlgamma", "native_dropout_backward",
    "positive", "rrelu", "sigmoid_backward", "silu_backward", "tanh_backward", "threshold_backward", "true_divide",
))  # fmt: skip
"""Operators on each element by itself whose results have no type that a contract works out of the operands' types."""
_OF_TWO: Final = frozenset((("other", True), ("out", True)))
"""Overloads of ``max`` and ``min`` that compare two tensors."""


def tags_of(schema: FunctionSchema) -> tuple[Any, ...]:
    """Return the marks of an operator of the library."""
    return tuple(_tags_of(schema, schema.name.partition("::")[2]))


def _tags_of(schema: FunctionSchema, name: str) -> Iterator[Any]:
    yield Tag.pt2_compliant_tag
    if not any([argument.type.plain == "Tensor" for argument in (*schema.arguments, *schema.returns)]):
        yield from [Tag.data_dependent_output] if name in _READING else ()
        return
    base = name if name.endswith("__") else name.removesuffix("_")
    contracts, is_out = PUBLIC.get(base, ()), any([argument.is_out for argument in schema.arguments])
    if is_out:
        yield Tag.out
    elif schema.is_mutable and _is_inplace(name):
        yield Tag.inplace
        if name in _VIEWING:
            yield Tag.inplace_view
    if _draws({argument.name for argument in schema.arguments}, name) or any([op.is_random for op in contracts]):
        yield Tag.nondeterministic_seeded
    if name in _READING:
        yield Tag.data_dependent_output
    if not is_out and (name in _SHAPED_BY_DATA or any([op.data_dependent for op in contracts])):
        yield Tag.dynamic_output_shape
    if base in _REDUCING and (schema.overload_name, base in ("max", "min")) not in _OF_TWO:
        yield Tag.reduction
    elif base in (*_POINTWISE, "max", "min") or any([op.promotion and op.public == base for op in contracts]):
        yield Tag.pointwise


def _draws(arguments: set[str], name: str) -> bool:
    """Whether an operator with these arguments draws numbers."""
    return not name.endswith("_backward") and (bool(arguments & _DRAWING) or arguments >= {"p", "train"})


def _is_inplace(name: str) -> bool:
    return (name.endswith("_") and not name.endswith("__")) or (name.startswith("__i") and name.endswith("__"))
