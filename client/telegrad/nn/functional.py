"""Functions of neural networks: those of the contracts, with the arguments that only a client understands.

``inplace=True`` picks the in-place form; a call that changes nothing, such as dropout outside of training,
costs nothing.
"""

# ruff: noqa: I001 - what is imported under its own name is what users find
from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from telegrad._functions.numeric.distances import pdist as pdist
from telegrad._lazy import lazy
from telegrad._ops.functions import function, names_in
from telegrad._ops.signatures import publish
from telegrad._session.own_code import note
from telegrad._tensor.number_checks import is_number
from telegrad._tensor.tensor import Tensor
from telegrad._ops.overriding import (
    handle_torch_function as handle_torch_function,
    has_torch_function as has_torch_function,
    has_torch_function_unary as has_torch_function_unary,
    has_torch_function_variadic as has_torch_function_variadic,
)
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, ShapeError

from . import _reduction
from ._functional.attention import multi_head_attention_forward as multi_head_attention_forward
from ._functional.bags import embedding as embedding
from ._functional.bags import embedding_bag as embedding_bag
from ._functional.fractional import (
    fractional_max_pool2d as fractional_max_pool2d,
    fractional_max_pool2d_with_indices as fractional_max_pool2d_with_indices,
    fractional_max_pool3d as fractional_max_pool3d,
    fractional_max_pool3d_with_indices as fractional_max_pool3d_with_indices,
)
from ._functional.grouped import (
    grouped_mm as grouped_mm,
    scaled_grouped_mm as scaled_grouped_mm,
    scaled_mm as scaled_mm,
)
from ._functional.losses import (
    cosine_embedding_loss as cosine_embedding_loss,
    ctc_loss as ctc_loss,
    gaussian_nll_loss as gaussian_nll_loss,
    hinge_embedding_loss as hinge_embedding_loss,
    linear_cross_entropy as linear_cross_entropy,
    margin_ranking_loss as margin_ranking_loss,
    multi_margin_loss as multi_margin_loss,
    multilabel_margin_loss as multilabel_margin_loss,
    multilabel_soft_margin_loss as multilabel_soft_margin_loss,
    poisson_nll_loss as poisson_nll_loss,
    soft_margin_loss as soft_margin_loss,
    triplet_margin_loss as triplet_margin_loss,
    triplet_margin_with_distance_loss as triplet_margin_with_distance_loss,
)
from ._functional.projections import (
    _canonical_mask as _canonical_mask,
    _in_projection as _in_projection,
    _in_projection_packed as _in_projection_packed,
    _none_or_dtype as _none_or_dtype,
    _verify_batch_size as _verify_batch_size,
)
from ._functional.rearrangements import (
    channel_shuffle as channel_shuffle,
    conv_tbc as conv_tbc,
    feature_alpha_dropout as feature_alpha_dropout,
    gumbel_softmax as gumbel_softmax,
    instance_norm as instance_norm,
    local_response_norm as local_response_norm,
    native_channel_shuffle as native_channel_shuffle,
    pixel_shuffle as pixel_shuffle,
    pixel_unshuffle as pixel_unshuffle,
    rrelu as rrelu,
    rrelu_ as rrelu_,
)
from ._functional.resampling import (
    affine_grid as affine_grid,
    grid_sample as grid_sample,
    interpolate as interpolate,
    upsample as upsample,
    upsample_bilinear as upsample_bilinear,
    upsample_nearest as upsample_nearest,
)
from ._functional.windows import (
    adaptive_avg_pool1d as adaptive_avg_pool1d,
    adaptive_max_pool1d_with_indices as adaptive_max_pool1d_with_indices,
    adaptive_max_pool2d_with_indices as adaptive_max_pool2d_with_indices,
    adaptive_max_pool3d_with_indices as adaptive_max_pool3d_with_indices,
    avg_pool1d as avg_pool1d,
    conv1d as conv1d,
    conv2d as conv2d,
    conv3d as conv3d,
    conv_transpose1d as conv_transpose1d,
    conv_transpose2d as conv_transpose2d,
    conv_transpose3d as conv_transpose3d,
    lp_pool1d as lp_pool1d,
    lp_pool2d as lp_pool2d,
    lp_pool3d as lp_pool3d,
    max_pool1d as max_pool1d,
    max_pool1d_with_indices as max_pool1d_with_indices,
    max_pool2d as max_pool2d,
    max_pool2d_with_indices as max_pool2d_with_indices,
    max_pool3d as max_pool3d,
    max_pool3d_with_indices as max_pool3d_with_indices,
    unfold as unfold,
)

_Reduction = _reduction


def _activation(name: str, input: Tensor, inplace: bool, *args: Any) -> Tensor:
    return function(f"{name}_" if inplace else name)(input, *args)  # type: ignore[no-any-return]


_relu, _relu_ = function("relu"), function("relu_")


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(input, 0)"""
    return _relu_(input) if inplace else _relu(input)  # type: ignore[no-any-return]


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(input, 0), 6)"""
    return _activation("relu6", input, inplace)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """input * sigmoid(input)"""
    return _activation("silu", input, inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * tanh(softplus(input))"""
    return _activation("mish", input, inplace)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """input where it is positive, else negative_slope * input"""
    return _activation("leaky_relu", input, inplace, negative_slope)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input where it is positive, else alpha * (exp(input) - 1)"""
    return _activation("elu", input, inplace, alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """The self-normalizing ELU."""
    return _activation("selu", input, inplace)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input where it is positive, else alpha * (exp(input / alpha) - 1)"""
    return _activation("celu", input, inplace, alpha)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """input within limits"""
    return _activation("hardtanh", input, inplace, min_val, max_val)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """relu6(input + 3) / 6"""
    return _activation("hardsigmoid", input, inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * relu6(input + 3) / 6"""
    return _activation("hardswish", input, inplace)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """input where it is greater than ``threshold``, else ``value``"""
    return _activation("threshold", input, inplace, threshold, value)


def relu_(input: Tensor) -> Tensor:
    """``relu`` in place."""
    return _activation("relu", input, True)


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-input))"""
    return function("sigmoid")(input)  # type: ignore[no-any-return]


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return function("tanh")(input)  # type: ignore[no-any-return]


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """input where it is positive, else weight * input"""
    return function("prelu")(input, weight)  # type: ignore[no-any-return]


def _implicit_dim(name: str, input: Tensor) -> int:
    warnings.warn(f"{name}: Implicit dimension choice for {name} has been deprecated; pass dim=X", stacklevel=3)
    return 0 if input.ndim in (0, 1, 3) else 1


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """exp(input) divided by its sum over ``dim``."""
    along = _implicit_dim("softmax", input) if dim is None else dim
    return function("softmax")(input, along, dtype=dtype)  # type: ignore[no-any-return]


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """The logarithm of ``softmax``."""
    along = _implicit_dim("log_softmax", input) if dim is None else dim
    return function("log_softmax")(input, along, dtype=dtype)  # type: ignore[no-any-return]


# -- dropout


def check_probability(p: Any) -> None:
    """Refuse what is no share of elements to drop."""
    if not (is_number(p) or isinstance(p, Tensor)):
        raise ArgumentTypeError(f"dropout probability has to be a number, not {p!r}")
    if not 0.0 <= p <= 1.0:
        raise ArgumentError(f"dropout probability has to be between 0 and 1, but got {p}")


def _drop(name: str, input: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    check_probability(p)
    if not training or p == 0.0:
        return input
    return function(f"{name}_" if inplace else name)(input, p, True)  # type: ignore[no-any-return]


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero elements with probability ``p`` and scale the others by 1 / (1 - p)."""
    return _drop("dropout", input, p, training, inplace)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout for self-normalizing networks."""
    return _drop("alpha_dropout", input, p, training, inplace)


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero whole channels of (n, c, l) or (c, l)."""
    return _drop_channels("dropout1d", input, p, training, inplace, unbatched=2, batched=3)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero whole channels of (n, c, h, w)."""
    if input.ndim not in (3, 4):
        note(
            f"dropout2d: Received a {input.ndim}-D input to dropout2d, which is deprecated and will result in an error "
            "in a future release. To retain the behavior and silence this warning, please use dropout instead."
        )
    elif input.ndim == 3:
        note(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior is desired:"
            " the input is (N, C, L). Please use dropout1d for that."
        )
    return _drop("feature_dropout", input, p, training, inplace)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero whole channels of (n, c, d, h, w) or (c, d, h, w)."""
    if input.ndim not in (4, 5):
        note(
            f"dropout3d: Received a {input.ndim}-D input to dropout3d, which is deprecated and will result in an error "
            "in a future release. To retain the behavior and silence this warning, please use dropout instead."
        )
    unbatched = 4 if input.ndim == 5 else input.ndim
    return _drop_channels("dropout3d", input, p, training, inplace, unbatched=unbatched, batched=5)


def _drop_channels(
    name: str, input: Tensor, p: float, training: bool, inplace: bool, *, unbatched: int, batched: int
) -> Tensor:
    if input.ndim not in (unbatched, batched):
        raise ShapeError(f"{name}: expected {unbatched} or {batched} dimensions, got {input._meta}")
    if input.ndim == batched:
        return _drop("feature_dropout", input, p, training, inplace)
    dropped = _drop("feature_dropout", input.unsqueeze(0), p, training, inplace)
    return input if inplace else dropped.squeeze(0)


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps over the last dimension."""
    return x1.sub(x2).add(eps).norm(p, -1, keepdim)


def normalize(
    input: Tensor, p: float = 2.0, dim: int | Sequence[int] = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Tensor:
    """input / max(norm(input), eps) along a dimension"""
    if out is None:
        return function("normalize")(input, p, dim, eps)  # type: ignore[no-any-return]
    return function("normalize")(input, p, dim, eps, out=out)  # type: ignore[no-any-return]


if TYPE_CHECKING:
    from ._attached import *  # noqa: F403
else:
    __getattr__, __dir__ = lazy(__name__, {}, names_in("nn.functional"), function)

publish(sys.modules[__name__])
