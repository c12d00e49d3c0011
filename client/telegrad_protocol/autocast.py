"""What autocast does to a call: PyTorch's lists of operations by device type, and the casts that follow from them.

Both ends look here: the server casts operands, the client works out of which type the results are. A rule concerns the
functional form of an operation only; in-place and ``out=`` forms run as they are. Source of the lists: PyTorch's
``autocast_mode.h`` and ``autocast_mode.cpp``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from .dtypes import ALL, DType, bfloat16, float16, float32, float64
from .errors import DTypeError, NotSupportedError
from .meta import Meta
from .ops import TABLE, Op
from .ops.layers.losses import _cross_entropy_in_float32, has_probabilities, reduction_of

Policy: TypeAlias = str
LOWER: Final[Policy] = "lower_precision_fp"
FP32: Final[Policy] = "fp32"
SET_DTYPE: Final[Policy] = "fp32_set_opt_dtype"
PROMOTE: Final[Policy] = "promote"
BANNED: Final[Policy] = "banned"
FUSED_LOSS: Final[Policy] = "fp32_loss_of_halves"
Rule: TypeAlias = Policy | Callable[[Sequence[Any]], Policy | None]
"""A policy; or a function of the arguments, with tensors as metas, that names one, or none."""

DEVICE_TYPES: Final = ("cuda", "cpu")
"""The types of devices that have rules, in the order in which the rules are applied."""
DEFAULT_DTYPES: Final = {"cuda": float16, "cpu": bfloat16}
LOWER_DTYPES: Final = (bfloat16, float16)


class Autocast:
    """Which device types cast to which lower type, and whether casts of weights are kept; interned by ``of``."""

    __slots__ = ("cache_enabled", "dtypes", "lower")
    _known: dict[tuple[Any, ...], Autocast] = {}

    dtypes: tuple[tuple[str, DType], ...]
    lower: dict[str, DType]
    cache_enabled: bool

    @staticmethod
    def of(dtypes: Iterable[tuple[str, DType]], cache_enabled: bool) -> Autocast | None:
        """Return the one instance of these settings, or None where no device type casts."""
        key = (tuple(dtypes), cache_enabled)
        if not key[0]:
            return None
        settings = Autocast._known.get(key)
        if settings is None:
            settings = Autocast._known[key] = object.__new__(Autocast)
            settings.dtypes, settings.cache_enabled = key
            settings.lower = dict(settings.dtypes)
        return settings

    def encode(self) -> list[Any]:
        """Return the settings in the form in which they travel."""
        return [self.cache_enabled, [[name, dtype.code] for name, dtype in self.dtypes]]

    @staticmethod
    def decode(value: Any) -> Autocast | None:
        """Return the settings that ``encode`` encoded; ValueError or TypeError for anything else."""
        cache_enabled, listed = value
        given = {name: ALL[code] for name, code in listed if code >= 0}
        if len(given) != len(listed) or type(cache_enabled) is not bool or not given.keys() <= set(DEVICE_TYPES):
            raise ValueError("no autocast settings")
        if any(dtype not in LOWER_DTYPES for dtype in given.values()):
            raise ValueError("no type to cast to")
        return Autocast.of([(name, given[name]) for name in DEVICE_TYPES if name in given], cache_enabled)


class Casting(NamedTuple):
    """What autocast does to one call: it casts the operands at ``positions`` to ``target``, or sets ``dtype`` to it.

    Where ``instead`` is set, that operation is called on as many of the first arguments as it takes tensors, and on
    ``attributes``. ``dtype_at`` is the position of the parameter ``dtype``.
    """

    target: DType
    positions: tuple[int, ...] = ()
    dtype_at: int | None = None
    instead: Op | None = None
    attributes: tuple[Any, ...] = ()

    def changed(self, op: Op, args: Sequence[Any], cast: Callable[[Any], Any]) -> tuple[Op, tuple[Any, ...]]:
        """Return the operation and the arguments to call it with, with operands converted by ``cast``."""
        if self.instead is not None:
            return self.instead, (*args[: len(self.instead.tensor_positions)], *self.attributes)
        changed = list(args)
        for position in self.positions:
            changed[position] = cast(changed[position])
        if self.dtype_at is not None:
            changed[self.dtype_at] = self.target
        return op, tuple(changed)


_PRODUCTS = (
    "addbmm", "addmm", "baddbmm", "bmm", "linalg_matmul", "linalg_multi_dot", "linalg_vecdot",
    "linear", "matmul", "mm", "prelu", "scaled_dot_product_attention",
)  # fmt: skip
_FACTORIZATIONS = (
    "_lu_with_info", "cholesky", "cholesky_inverse", "cholesky_solve", "geqrf", "inverse", "linalg_cholesky",
    "linalg_cholesky_ex", "linalg_cond", "linalg_cond.p_str", "linalg_eig", "linalg_eigh", "linalg_eigvals",
    "linalg_eigvalsh", "linalg_householder_product", "linalg_inv", "linalg_inv_ex", "linalg_lstsq", "linalg_lu",
    "linalg_lu_factor", "linalg_lu_factor_ex", "linalg_lu_solve", "linalg_matrix_rank",
    "linalg_matrix_power", "linalg_matrix_rank.tolerances", "matrix_power", "linalg_qr", "linalg_solve",
    "linalg_solve_ex", "linalg_svd", "linalg_svdvals", "linalg_tensorinv", "linalg_tensorsolve", "lu_solve", "orgqr",
    "ormqr", "qr", "svd", "triangular_solve",
)  # fmt: skip
_TRANSFORMS = ("stft", "istft", *(
    f"fft_{name}{suffix}" for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft") for suffix in ("", "2", "n")
))  # fmt: skip
_CONVOLUTIONS = (
    "conv1d", "conv1d.padding", "conv2d", "conv2d.padding", "conv3d", "conv3d.padding", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d",
)  # fmt: skip
_LOSSES = (
    "binary_cross_entropy_with_logits", "cross_entropy", "huber_loss", "kl_div", "nll_loss", "smooth_l1_loss",
)  # fmt: skip


def _unless_weighed(bound: Sequence[Any]) -> Policy | None:
    """Return the policy of losses that PyTorch composes of unlisted operations where a weight is given."""
    return FP32 if bound[-1] is None else None


def _recurrent_on_cpu(bound: Sequence[Any]) -> Policy | None:
    """Return the policy of recurrent layers: PyTorch composes GRUs, whose states make the results float32."""
    is_gru = any([value == "GRU" for value in bound if isinstance(value, str)])
    return None if is_gru and bound[0].dtype is bound[1].dtype is float32 else LOWER


def _unless_indices_are_returned(bound: Sequence[Any]) -> Policy | None:
    """Return the policy of pooling, which is another, unlisted operation where it returns indices."""
    return None if bound[-1] else FP32


def _inner_on_cpu(bound: Sequence[Any]) -> Policy | None:
    """Return the policy of ``inner``: it is ``dot`` on vectors, ``mul`` with a number, else a matrix product."""
    dims = bound[0].ndim, bound[1].ndim
    return None if 0 in dims or dims == (1, 1) else LOWER


def _inner_on_cuda(bound: Sequence[Any]) -> Policy | None:
    return None if 0 in (bound[0].ndim, bound[1].ndim) else PROMOTE


def _pad_on_cpu(bound: Sequence[Any]) -> Policy | None:
    sizes, mode = len(bound[1]), bound[2]
    return FP32 if mode == "replicate" or (mode == "reflect" and sizes <= 4) else None


def _cross_entropy_on_cuda(bound: Sequence[Any]) -> Policy:
    """Return ``FP32``, or ``FUSED_LOSS`` where a kernel reads half precision and computes in float32 itself."""
    input, target, weight = bound[:3]
    is_half = input.dtype in LOWER_DTYPES and input.device.type == "cuda"
    return FUSED_LOSS if is_half and weight is None and not has_probabilities(input, target) else FP32


def _reflected_division(bound: Sequence[Any]) -> Policy | None:
    """Return the policy of a number divided by a tensor, which PyTorch computes by ``reciprocal``."""
    return None if isinstance(bound[0], Meta) else FP32


def _listed(**lists: Iterable[str]) -> dict[str, Rule]:
    return {name: policy for policy, names in lists.items() for name in names}


_CPU: Final[dict[str, Rule]] = {
    **_listed(
        lower_precision_fp=(*_PRODUCTS, *_CONVOLUTIONS),
        fp32=(
            *_LOSSES, *_FACTORIZATIONS, *_TRANSFORMS,
            "adaptive_avg_pool3d", "adaptive_max_pool3d", "avg_pool3d", "binary_cross_entropy",
            "max_unpool1d", "max_unpool2d", "max_unpool3d", "nanquantile", "nanquantile.scalar", "pinverse", "polar",
            "prod", "quantile", "quantile.scalar", "trace", "view_as_complex",
        ),
        promote=("cat", "index_copy", "stack"),
    ),
    "inner": _inner_on_cpu, "l1_loss": _unless_weighed, "max_pool3d": _unless_indices_are_returned,
    "mse_loss": _unless_weighed, "pad": _pad_on_cpu, "_rnn": _recurrent_on_cpu, "_rnn_layer": _recurrent_on_cpu,
}  # fmt: skip

_CUDA: Final[dict[str, Rule]] = {
    **_listed(
        lower_precision_fp=(*_PRODUCTS, *_CONVOLUTIONS, "_rnn", "_rnn_layer", "addmv", "addr", "convolution", "mv"),
        fp32=(
            *_LOSSES, *_FACTORIZATIONS, *_TRANSFORMS,
            "acos", "asin", "cosh", "cosine_similarity", "dist", "erfinv", "exp", "expm1",
            "group_norm", "l1_loss", "layer_norm", "linalg_matrix_norm", "linalg_matrix_norm.str_ord", "linalg_norm",
            "linalg_norm.ord_str", "linalg_vector_norm", "log", "log10", "log1p", "log2", "logsumexp", "mse_loss",
            "mvlgamma",
            "normalize", "pow", "reciprocal", "rms_norm", "rsqrt", "sinh", "softplus", "square", "tan",
        ),
        fp32_set_opt_dtype=(
            "cumprod", "cumsum", "log_softmax", "log_softmax.functional", "norm", "norm.named", "prod", "softmax",
            "softmax.functional", "softmin", "sum",
        ),
        promote=(
            "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "index_put", "scatter_add",
            "vdot",
        ),
        banned=("binary_cross_entropy",),
    ),
    "cross_entropy": _cross_entropy_on_cuda, "div": _reflected_division, "inner": _inner_on_cuda,
}  # fmt: skip

_RULES: Final = {"cpu": _CPU, "cuda": _CUDA}
_COMPOSED_IN_FLOAT32: Final = (
    "cdist", "cosine_embedding_loss", "hinge_embedding_loss", "margin_ranking_loss", "multi_margin_loss",
    "multilabel_margin_loss", "poisson_nll_loss", "soft_margin_loss", "triplet_margin_loss",
)  # fmt: skip
COMPOSED: Final[dict[str, dict[str, Policy]]] = {
    "cuda": {
        "einsum": LOWER, "grid_sample": PROMOTE, "pdist": FP32, "renorm": FP32, "tensordot": PROMOTE,
        **dict.fromkeys(_COMPOSED_IN_FLOAT32, FP32),
    },
    "cpu": dict.fromkeys(
        (*_COMPOSED_IN_FLOAT32, "ctc_loss", "fractional_max_pool2d", "fractional_max_pool3d", "grid_sample"), FP32
    ),
}  # fmt: skip
"""Functions that PyTorch lists as operations and telegrad composes of several, which are cast together."""
_BANNED: Final = (
    "binary_cross_entropy: nn.functional.binary_cross_entropy and nn.BCELoss are unsafe to autocast; where a sigmoid "
    "comes right before them, use nn.functional.binary_cross_entropy_with_logits or nn.BCEWithLogitsLoss for both"
)


def rule_of(op: Op, device_type: str) -> Rule | None:
    """Return the rule of an operation on a type of device, or None where autocast does not change it."""
    return _RULES[device_type].get(op.name)


def casting_of(op: Op, bound: Sequence[Any], device_type: str, lower: DType) -> Casting | None:
    """Return what autocast does to a call on these arguments, with tensors as metas; None where it changes nothing."""
    rule = rule_of(op, device_type)
    policy = rule(bound) if callable(rule) else rule
    if policy is None:
        return None
    if policy == BANNED:
        raise DTypeError(_BANNED)
    if policy == SET_DTYPE:
        return _with_dtype(op, bound, device_type)
    if policy == FUSED_LOSS:
        return _fused_loss(bound)
    target = lower if policy == LOWER else float32
    if policy == PROMOTE:
        target = _widest(op.public, op.metas_in(bound), device_type, lower)
    positions = [p for p in op.tensor_positions if any(_changes(m, device_type, target) for m in _metas(bound[p]))]
    return Casting(target, tuple(positions))


def _with_dtype(op: Op, bound: Sequence[Any], device_type: str) -> Casting:
    """Return the casting that sets the type of the result, unless the caller has set it."""
    at = next(i for i, param in enumerate(op.params) if param.name == "dtype")
    is_set = bound[at] is not None or not is_eligible(bound[0], device_type)
    return Casting(float32, (), None if is_set else at)


def composed_target(name: str, metas: Sequence[Meta], device_type: str, lower: DType) -> DType | None:
    """Return the type that all operands of a function in ``COMPOSED`` are cast to; None where it is not listed."""
    policy = COMPOSED[device_type].get(name)
    if policy is None or not any(meta.device.type == device_type for meta in metas):
        return None
    if policy == PROMOTE:
        return _widest(name, metas, device_type, lower)
    return lower if policy == LOWER else float32


def _fused_loss(bound: Sequence[Any]) -> Casting:
    """Return the casting that computes a loss of half-precision logits in float32; converting them would cost more."""
    _, _, _, size_average, ignore_index, reduce, reduction, label_smoothing = bound
    kind = reduction_of("cross_entropy", reduction, size_average, reduce)
    return Casting(float32, instead=_cross_entropy_in_float32, attributes=(kind, ignore_index, label_smoothing))


def _widest(name: str, metas: Iterable[Any], device_type: str, lower: DType) -> DType:
    """Return float32 if an eligible operand has it, else the lower type."""
    widest = lower
    for meta in metas:
        if not is_eligible(meta, device_type):
            continue
        if meta.dtype is float32:
            widest = float32
        elif widest is not float32 and meta.dtype is not lower:
            raise DTypeError(f"{name}: cannot promote {meta} where autocast runs in {lower.name}")
    return widest


def _metas(argument: Any) -> Sequence[Any]:
    return argument if isinstance(argument, (tuple, list)) else (argument,)


def is_eligible(meta: Any, device_type: str) -> bool:
    """Tell whether autocast may cast a tensor of this meta: of real floating point up to 32 bits, on such a device."""
    return (
        isinstance(meta, Meta)
        and meta.device.type == device_type
        and meta.dtype.is_floating_point
        and meta.dtype is not float64
    )


def _changes(meta: Any, device_type: str, target: DType) -> bool:
    return is_eligible(meta, device_type) and meta.dtype is not target


def recast(op: Op, bound: Sequence[Any], autocast: Autocast) -> tuple[Op, tuple[Any, ...]]:
    """Return the operation and its arguments, with tensors as metas, after all casts."""
    arguments = tuple(bound)
    for device_type, lower in autocast.dtypes:
        if not any(meta.device.type == device_type for meta in op.metas_in(arguments)):
            continue
        casting = casting_of(op, arguments, device_type, lower)
        if casting is not None:
            op, arguments = casting.changed(
                op, arguments, partial(_cast, device_type=device_type, target=casting.target)
            )
    return op, arguments


def _cast(argument: Any, device_type: str, target: DType) -> Any:
    if isinstance(argument, (tuple, list)):
        return tuple([_cast(item, device_type, target) for item in argument])
    if not _changes(argument, device_type, target):
        return argument
    return TABLE["_to_copy"].rule(argument, dtype=target, device=None)


def check_device_type(name: str, device_type: str) -> str:
    """Return ``device_type``; ``NotSupportedError`` where autocast has no rules for it."""
    if device_type not in DEVICE_TYPES:
        raise NotSupportedError(f"{name}: unsupported autocast device_type {device_type!r}; there are: cuda, cpu")
    return device_type
