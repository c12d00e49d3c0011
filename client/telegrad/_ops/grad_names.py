"""What PyTorch prints as ``grad_fn`` of an operation's result: the name of the function that it differentiates by.

Most are the operation's own name; others are told by the operation that a composite ends in, or by its overload.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from telegrad._tensor.autograd_graph import OperationName
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import Op

Bound = Sequence[Any]


def grad_name(op: Op, bound: Bound) -> OperationName:
    """Such as ``AddBackward0``, for an operation on these metas and attributes."""
    name = OperationName(_printed_name(op, bound))
    name.op = op.name
    return name


def _printed_name(op: Op, bound: Bound) -> str:
    special = _SPECIAL.get(op.base.name) or _SPECIAL.get(op.base.public)
    if special is None:
        return "".join(word.capitalize() for word in op.base.public.split("_")) + "Backward0"
    return f"{special(bound) if callable(special) else special}"


def _ndim(operand: Any) -> int:
    return operand.ndim if isinstance(operand, Meta) else 0


def _matmul(bound: Bound) -> str:
    ranks = _ndim(bound[0]), _ndim(bound[1])
    known = {(1, 1): "Dot", (2, 2): "Mm", (2, 1): "Mv", (1, 2): "Squeeze4"}
    return _numbered(known.get(ranks, "UnsafeView"))


def _linear(bound: Bound) -> str:
    if _ndim(bound[0]) == 2:
        return _numbered("Mm" if bound[2] is None else "Addmm")
    return _numbered("UnsafeView" if bound[2] is None else "View")


def _reshape(bound: Bound) -> str:
    return _numbered("View" if bound[0].is_contiguous else "UnsafeView")


def _by_rank(first: str, both: str) -> Callable[[Bound], str]:
    """Overloads for a number on the left, on the right, and for two tensors."""

    def name(bound: Bound) -> str:
        return both if isinstance(bound[1], Meta) and isinstance(bound[0], Meta) else first

    return name


def _pow(bound: Bound) -> str:
    return f"PowBackward{0 if not isinstance(bound[1], Meta) else 1 if isinstance(bound[0], Meta) else 2}"


def _over_dims(name: str) -> Callable[[Bound], str]:
    return lambda bound: f"{name}Backward{0 if bound[1] is None else 1}"


def _clamp(bound: Bound) -> str:
    return f"ClampBackward{0 if any(isinstance(limit, Meta) for limit in bound[1:]) else 1}"


def _squeeze(bound: Bound) -> str:
    return f"SqueezeBackward{0 if bound[1] is None else 2 if isinstance(bound[1], tuple) else 1}"


def _sub(bound: Bound) -> str:
    return "SubBackward0" if isinstance(bound[0], Meta) else "RsubBackward1"


def _div(bound: Bound) -> str:
    return "DivBackward0" if isinstance(bound[0], Meta) else "MulBackward0"


def _reduced_loss(bound: Bound) -> str:
    return "SumBackward0" if "sum" in bound else "MeanBackward0"


def _numbered(name: str) -> str:
    return f"{name[:-1]}Backward{name[-1]}" if name[-1].isdigit() else f"{name}Backward0"


def _convolution(dims: int) -> Callable[[Bound], str]:
    return lambda bound: "ConvolutionBackward0" if _ndim(bound[0]) == dims + 2 else "SqueezeBackward1"


def _rounding(bound: Bound) -> str:
    return "RoundBackward1" if bound[1] else "RoundBackward0"


def _adaptive_mean(dims: int) -> Callable[[Bound], str]:
    return lambda bound: "MeanBackward1" if set(bound[1]) == {1} else f"AdaptiveAvgPool{dims}DBackward0"


def _sliding() -> dict[str, str | Callable[[Bound], str]]:
    """Convolutions and pooling; sequences are pictures of one line, which is taken away last."""
    names: dict[str, str | Callable[[Bound], str]] = {"im2col": "Im2ColBackward0", "fold": "Col2ImBackward0"}
    for dims in (1, 2, 3):
        names |= {f"{kind}{dims}d": _convolution(dims) for kind in ("conv", "conv_transpose")}
    for kind in ("max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool", "max_unpool"):
        names[f"{kind}1d"] = "SqueezeBackward1"
    for dims in (2, 3):
        names[f"max_pool{dims}d"] = f"MaxPool{dims}DWithIndicesBackward0"
        names[f"adaptive_avg_pool{dims}d"] = _adaptive_mean(dims)
        for kind, shown in (
            ("avg_pool", "AvgPool"),
            ("adaptive_max_pool", "AdaptiveMaxPool"),
            ("max_unpool", "MaxUnpool"),
        ):
            names[f"{kind}{dims}d"] = f"{shown}{dims}DBackward0"
    return names


_SPECIAL: Final[dict[str, str | Callable[[Bound], str]]] = {
    "matmul": _matmul, "linear": _linear, "reshape": _reshape, "flatten": _reshape, "ravel": _reshape, "pow": _pow,
    "sub": _sub, "div": _div, "rsub": "RsubBackward1", "round": _rounding,
    "sum": _over_dims("Sum"), "mean": _over_dims("Mean"),
    "prod": _over_dims("Prod"), "max": "MaxBackward1", "min": "MinBackward1", "max.dim": "MaxBackward0",
    "min.dim": "MinBackward0", "max.other": "MaximumBackward0", "min.other": "MinimumBackward0",
    "norm": "LinalgVectorNormBackward0", "clamp": _clamp, "squeeze": _squeeze, "narrow": "SliceBackward0",
    "chunk": "SplitBackward0",
    "contiguous": "CloneBackward0", "scatter.value": "ScatterBackward1", "layer_norm": "NativeLayerNormBackward0",
    "group_norm": "NativeGroupNormBackward0", "batch_norm": "NativeBatchNormBackward0",
    "cross_entropy": "NllLossBackward0", "l1_loss": _reduced_loss, "kl_div": _reduced_loss,
    "dropout": "MulBackward0", "square": "PowBackward0", "outer": "MulBackward0", "log1p": "Log1PBackward0",
    "scaled_dot_product_attention": "UnsafeViewBackward0", "normalize": "DivBackward0", "rms_norm": "MulBackward0",
    "movedim": "PermuteBackward0", "moveaxis": "PermuteBackward0", "swapaxes": "TransposeBackward0",
    "swapdims": "TransposeBackward0", "pad": "ConstantPadNdBackward0", "view_as": "ViewBackward0",
    "unflatten": "ViewBackward0", "remainder": _by_rank("RemainderBackward0", "RemainderBackward1"),
    "cross": "LinalgCrossBackward0", "vstack": "CatBackward0", "hstack": "CatBackward0", "dstack": "CatBackward0",
    "tile": "RepeatBackward0", "repeat_interleave": "ViewBackward0", "diff": "SubBackward0",
    "tensor_split": "SliceBackward0", "cosine_similarity": "SumBackward1", "logsigmoid": "LogSigmoidBackward0",
    "deg2rad": "Deg2RadBackward0", "rad2deg": "Rad2DegBackward0", "msort": "SortBackward0",
    "kron": "UnsafeViewBackward0", "linalg_cholesky": "LinalgCholeskyExBackward0",
    "linalg_solve": "LinalgSolveExBackward0",
    "special_softmax": "SoftmaxBackward0", "special_log_softmax": "LogSoftmaxBackward0",
    "copysign": _by_rank("CopysignBackward1", "CopysignBackward0"),
    "selu": "EluBackward0", "relu6": "HardtanhBackward0", "prelu": "PreluKernelBackward0",
    "copy_": "torch::autograd::CopyBackwards", **_sliding(),
}  # fmt: skip
