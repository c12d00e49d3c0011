"""Which calls may fail for what their elements are, so that only the server can tell."""

from __future__ import annotations

from typing import Final

from telegrad._session.catching.prompt_errors import ALWAYS, PATIENTLY
from telegrad_protocol.dtypes import INTEGER
from telegrad_protocol.meta import Device, Meta
from telegrad_protocol.ops import Op

MUCH_MEMORY: Final = 1 << 30
"""So many bytes may well be more than there are."""
_FACTORS = frozenset((
    "_cholesky_with_info", "_eigvals", "_eigvalsh", "_linalg_lstsq", "_linalg_pinv", "_linalg_solve",
    "_lu_with_info", "_plain_lu", "_svdvals", "cholesky", "cholesky_inverse", "inverse", "linalg_cholesky",
    "linalg_cholesky_ex", "linalg_cond", "linalg_eig", "linalg_eigh", "linalg_eigvals", "linalg_eigvalsh",
    "linalg_inv", "linalg_inv_ex", "linalg_ldl_factor", "linalg_ldl_factor_ex", "linalg_lstsq", "linalg_lu",
    "linalg_lu_factor", "linalg_lu_factor_ex", "linalg_lu_solve", "linalg_matrix_power", "linalg_matrix_rank",
    "linalg_pinv", "linalg_solve", "linalg_solve_ex", "linalg_svd", "linalg_svdvals", "linalg_tensorinv",
    "linalg_tensorsolve", "lu_solve", "matrix_power", "nuclear_norm", "pinverse", "svd",
))  # fmt: skip
_INDEXING = frozenset((
    "_bce", "_cross_entropy", "_cross_entropy_in_float32", "_ctc_loss", "_embedding", "_nll_loss_forward",
    "_softmax_cross_entropy", "bernoulli", "binary_cross_entropy", "cross_entropy", "div", "embedding",
    "embedding_renorm_", "floor_divide", "fmod", "gather", "index", "index_add", "index_copy", "index_fill",
    "index_put", "index_select", "masked_scatter", "max_unpool1d", "max_unpool2d", "max_unpool3d",
    "multinomial", "nanquantile", "nll_loss", "normal", "one_hot", "poisson", "put", "quantile", "remainder",
    "scatter", "scatter_add", "scatter_reduce", "take", "take_along_dim",
))  # fmt: skip
_DIVISIONS = frozenset(("div", "floor_divide", "fmod", "remainder"))


def may_fail(op: Op) -> bool:
    """Whether an operation factors or solves, which fails for what the elements are."""
    return op.base.public in _FACTORS


def late_error(op: Op, outs: tuple[Meta, ...] | None, device: Device) -> int:
    """Return how calls are awaited where their errors would be caught; 0 where the call itself finds them."""
    name = op.base.public
    if may_fail(op):
        return ALWAYS
    if sum([meta.nbytes for meta in outs or ()]) >= MUCH_MEMORY:
        return PATIENTLY
    if name not in _INDEXING or device.type != "cpu":
        return 0
    if name in _DIVISIONS and not (outs and outs[0].dtype.category == INTEGER):
        return 0  # division by zero is an error among integers alone
    return PATIENTLY
