"""Which types the targets of ``out=`` may have."""

from __future__ import annotations

from typing import Final

from telegrad_protocol.dtypes import DType, can_cast
from telegrad_protocol.errors import DTypeError

EXACT_TARGETS: Final = frozenset(
    (
        "addbmm", "addmm", "addmv", "alias_copy", "amax", "amin", "aminmax", "arange", "arange.start", "argmax",
        "argmin", "as_strided_copy", "avg_pool2d", "avg_pool3d", "baddbmm", "bitwise_not", "bmm", "bucketize", "ceil",
        "complex", "conj_physical", "cross", "cummax", "cummin", "cumprod", "cumsum", "detach_copy", "diag",
        "diagonal_copy", "diff", "dot", "expand_copy", "eye", "float_power", "floor", "frac", "frexp", "full",
        "gather", "gelu", "hardshrink", "hash_tensor", "heaviside", "histc", "histogram", "index_add", "index_copy",
        "index_reduce", "index_select", "inner", "isin", "isneginf", "isposinf", "kthvalue", "lerp",
        "linalg_cholesky", "linalg_cholesky_ex", "linalg_cross", "linalg_det", "linalg_eigh", "linalg_eigvalsh",
        "linalg_inv", "linalg_inv_ex", "linalg_ldl_factor", "linalg_ldl_factor_ex", "linalg_ldl_solve", "linalg_lu",
        "linalg_lu_factor", "linalg_lu_factor_ex", "linalg_lu_solve", "linalg_matrix_norm",
        "linalg_matrix_norm.str_ord", "linalg_matrix_power", "linalg_multi_dot", "linalg_norm", "linalg_norm.ord_str",
        "linalg_qr", "linalg_slogdet", "linalg_solve", "linalg_solve_ex", "linalg_solve_triangular", "linalg_svd",
        "linalg_svdvals", "linalg_vecdot", "linalg_vector_norm", "linear", "linspace", "log_softmax",
        "log_softmax.functional", "logcumsumexp", "logsigmoid", "logspace", "lu_solve", "lu_unpack", "masked_select",
        "matmul", "max.dim", "min.dim", "mm", "mode", "msort", "multinomial", "mv", "nan_to_num", "nanquantile",
        "nanquantile.scalar", "narrow_copy", "neg", "nonzero", "norm", "norm.named", "ones", "ormqr", "permute_copy",
        "polar", "qr", "quantile", "quantile.scalar", "renorm", "round", "scatter", "scatter.value", "scatter_add",
        "scatter_reduce", "searchsorted", "select_copy", "sgn", "sign", "signbit", "slice_copy", "slice_scatter",
        "softmax", "softmax.functional", "softplus", "softshrink", "sort", "sort.positional", "split_copy",
        "split_with_sizes_copy", "squeeze_copy", "svd", "t_copy", "take", "take_along_dim", "tensordot", "topk",
        "transpose_copy", "triangular_solve", "trunc", "unbind_copy", "unfold_copy", "unsqueeze_copy", "vdot",
        "view_as_complex_copy", "view_as_real_copy", "view_copy", "where", "zeros",
    )
)  # fmt: skip
"""Functions whose targets have the types of the results; the results of others are converted."""
TYPED_BY_TARGETS: Final = frozenset(("sum", "prod", "cumsum", "cumprod"))
"""Functions that compute in the type of their target where the call names none."""

TARGETS_OF_ANY_TYPE: Final = frozenset(("bernoulli",))
"""Functions whose results every type can hold: they are 0 or 1, although their type is that of probabilities."""

ONE_VALUE_EVERYWHERE: Final = frozenset(("fill_", "zero_"))
"""Operations that write one value everywhere, so that elements of their target may share memory."""


def check_target_type(name: str, target: DType, result: DType, asked: DType | None = None) -> None:
    """Refuse a target that cannot hold a result's type, or for a function of ``EXACT_TARGETS`` has another one.

    ``asked`` is the type that a call in place names, which is that of its target.
    """
    if asked is not None and asked is not target:
        raise DTypeError(f"{name}: Bad in-place call: dtype={asked.name} and the tensor's {target.name} should match")
    if target is result or name in TARGETS_OF_ANY_TYPE or (name not in EXACT_TARGETS and can_cast(result, target)):
        return
    function = name.partition(".")[0]
    if name in EXACT_TARGETS:
        raise DTypeError(f"{function}: expected out to be {result.name}, the type of the result, but got {target.name}")
    raise DTypeError(f"{function}: result type {result.name} can't be cast to {target.name}")
