"""PyTorch's operator for each of telegrad's operations: which overload it is, and its arguments in PyTorch's order.

Most operations have PyTorch's name and arguments. Tables here say where overloads are not chosen by their schemas, and
where an operation of telegrad's has another name or order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from telegrad._library.aten import packet
from telegrad._ops.functions import function
from telegrad._ops.operand_classes import without_modes
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import OperatorError
from telegrad_protocol.layout import contiguous_strides
from telegrad_protocol.memory_format import contiguous_format
from telegrad_protocol.ops import Op

from .asking import without_dispatch
from .aten_backwards import REDUCTIONS
from .own_operators import own_overload

AtenCall = tuple[Any, tuple[Any, ...], dict[str, Any]]
Named = dict[str, Any]
_TENSOR: Final = frozenset(
    ["add", "sub", "mul", "true_divide", "bitwise_left_shift", "bitwise_right_shift", "atan2", "multiply", "subtract"]
)
"""Operators that take a number as a tensor: their overload is ``Tensor``, whatever the other operand is."""
_BY_OTHER: Final = frozenset(
    ["eq", "ne", "lt", "le", "gt", "ge", "remainder", "fmod", "bitwise_and", "bitwise_or", "bitwise_xor"]
)
"""Operators with an overload ``Scalar`` for numbers."""


def _pow(a: Named) -> tuple[str, tuple[Any, ...]]:
    base, exponent = a["input"], a["exponent"]
    if not isinstance(base, Tensor):
        return "pow.Scalar", (base, exponent)
    return f"pow.Tensor_{'Tensor' if isinstance(exponent, Tensor) else 'Scalar'}", (base, exponent)


def _reduction(dim: str, whole: str = "default") -> Callable[[str, Named], Any]:
    def rule(name: str, a: Named) -> Any:
        keywords = _dtype_in(a)
        if a["dim"] is None:
            return f"{name}.{whole}", (a["input"],), keywords
        dims = [a["dim"]] if isinstance(a["dim"], int) else list(a["dim"])
        return f"{name}.{dim}", (a["input"], dims, a["keepdim"]), keywords

    return rule


def _prod(name: str, a: Named) -> Any:
    if a["dim"] is not None:
        return f"{name}.dim_int", (a["input"], a["dim"], a["keepdim"]), _dtype_in(a)
    return f"{name}.default", (a["input"],), _dtype_in(a)


def _dtype_in(a: Named) -> Named:
    return {"dtype": a["dtype"]} if a.get("dtype") is not None else {}


def _in_layout(_: str, a: Named) -> Any:
    if tuple(a["strides"]) != contiguous_strides(tuple(a["input"].shape)):
        raise KeyError("clone")
    return "clone.default", (a["input"],), {"memory_format": contiguous_format}


def _moments(name: str, a: Named) -> Any:
    dims = None if a["dim"] is None else [a["dim"]] if isinstance(a["dim"], int) else list(a["dim"])
    return f"{name}.correction", (a["input"], dims), {"correction": a["correction"], "keepdim": a["keepdim"]}


def _same(aten_name: str, *names: str, extra: tuple[Any, ...] = ()) -> Callable[[str, Named], Any]:
    """Return the rule of an operator that takes these arguments in this order."""
    return lambda _, a: (aten_name, (*[a[name] for name in names], *extra), {})


def _convolution_backward(_: str, a: Named) -> Any:
    with without_dispatch(), without_modes():
        weight = a["grad_output"].new_empty(_weight_size(a))
    mask = [False, True, False]
    return "convolution_backward.default", (
        a["grad_output"], a["input"], weight, None, a["stride"], a["padding"], a["dilation"], False,
        (0,) * len(a["stride"]), a["groups"], mask,
    ), {}  # fmt: skip


def _weight_size(a: Named) -> tuple[int, ...]:
    out_channels, channels = a["grad_output"].shape[1], a["input"].shape[1]
    return (out_channels, channels // a["groups"], *a["kernel_size"])


def _max_pool(_: str, a: Named) -> Any:
    names = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode")
    return f"max_pool{len(a['kernel_size'])}d_with_indices.default", tuple([a[name] for name in names]), {}


def _avg_pool(_: str, a: Named) -> Any:
    names = ("input", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
    pooled = f"avg_pool{len(a['kernel_size'])}d.default"
    more = () if a["divisor_override"] is None else (a["divisor_override"],)
    return pooled, (*[a[name] for name in names], *more), {}


def _adaptive_avg_pool(_: str, a: Named) -> Any:
    return f"_adaptive_avg_pool{len(a['output_size'])}d.default", (a["input"], a["output_size"]), {}


def _squeeze(name: str, a: Named) -> Any:
    dim = a["dim"]
    if dim is None:
        return f"{name}.default", (a["input"],), {}
    return (f"{name}.dim", (a["input"], dim), {}) if isinstance(dim, int) else (f"{name}.dims", (a["input"], dim), {})


def _any(name: str, a: Named) -> Any:
    dim = a["dim"]
    if dim is None:
        return f"{name}.default", (a["input"],), {}
    kind = "dim" if isinstance(dim, int) else "dims"
    return f"{name}.{kind}", (a["input"], dim, a["keepdim"]), {}


def _attention(_: str, a: Named) -> Any:
    keywords = {name: a[name] for name in ("attn_mask", "scale") if a[name] is not None}
    given = (a["query"], a["key"], a["value"], 0.0, a["is_causal"])
    return "_scaled_dot_product_flash_attention_for_cpu.default", given, keywords


def _attention_backward(_: str, a: Named) -> Any:
    keywords = {name: a[name] for name in ("attn_mask", "scale") if a[name] is not None}
    names = ("grad_output", "query", "key", "value", "output", "logsumexp")
    given = (*[a[name] for name in names], 0.0, a["is_causal"])
    return "_scaled_dot_product_flash_attention_for_cpu_backward.default", given, keywords


def _pool(name: str, a: Named) -> Any:
    """Return a pooling function's operator: sizes are lists of all dimensions there, and no stride is an empty list."""
    rest = [value for key, value in a.items() if key not in ("input", "stride", "return_indices")]
    rest.insert(1, a["stride"] or [])
    while rest[-1] is None:
        rest.pop()
    spread = [value * int(name[-2]) if isinstance(value, list) and len(value) == 1 else value for value in rest]
    return f"{name}{'_with_indices' if a.get('return_indices') else ''}.default", (a["input"], *spread), {}


def _loss(name: str, a: Named) -> Any:
    if a.get("weight") is not None or a.get("size_average") is not None or a.get("reduce") is not None:
        raise KeyError(name)
    more = [a[key] for key in ("beta", "delta") if key in a]
    return f"{name}.default", (a["input"], a["target"], REDUCTIONS.index(a["reduction"]), *more), {}


def _norm(_: str, a: Named) -> Any:
    order = 2 if a["p"] == "fro" else a["p"]
    if isinstance(order, str):
        raise KeyError(order)
    dims = [a["dim"]] if isinstance(a["dim"], int) else a["dim"]
    return "linalg_vector_norm.default", (a["input"], order, dims, a["keepdim"]), _dtype_in(a)


def _batch_norm(_: str, a: Named) -> Any:
    names = ("input", "weight", "bias", "running_mean", "running_var", "training", "momentum", "eps")
    return "batch_norm.default", (*[a[name] for name in names], False), {}


def _embedding(_: str, a: Named) -> Any:
    if a["max_norm"] is not None:
        raise KeyError("embedding")
    padding = -1 if a["padding_idx"] is None else a["padding_idx"]
    return "embedding.default", (a["weight"], a["input"], padding, a["scale_grad_by_freq"], a["sparse"]), {}


def _sub(name: str, a: Named) -> Any:
    if isinstance(a["input"], Tensor):
        raise KeyError(name)
    return "rsub.Scalar", (a["other"], a["input"], a.get("alpha", 1)), {}


def _nonzero(_: str, a: Named) -> Any:
    if a["as_tuple"]:
        raise KeyError("nonzero")
    return "nonzero.default", (a["input"],), {}


_RULES: Final[dict[str, Callable[[str, Named], Any]]] = {
    "pow": lambda _, a: (*_pow(a), {}), "sub": _sub,
    "sum": _reduction("dim_IntList"), "mean": _reduction("dim"), "prod": _prod, "_in_layout": _in_layout,
    "var": _moments, "std": _moments,
    "std.unbiased": _same("std.default", "input", "unbiased"),
    "var.unbiased": _same("var.default", "input", "unbiased"),
    "any": _any, "all": _any, "squeeze": _squeeze,
    "softmax": _same("_softmax.default", "input", "dim", extra=(False,)),
    "log_softmax": _same("_log_softmax.default", "input", "dim", extra=(False,)),
    "_layer_norm": _same("native_layer_norm.default", "input", "normalized_shape", "weight", "bias", "eps"),
    "_embedding": _same("embedding.default", "weight", "input", "padding_idx", "scale_grad_by_freq"),
    "_relu_backward": _same("threshold_backward.default", "gradient", "result", extra=(0,)),
    "_tanh_backward": _same("tanh_backward.default", "gradient", "result"),
    "_sigmoid_backward": _same("sigmoid_backward.default", "gradient", "result"),
    "_silu_backward": _same("silu_backward.default", "gradient", "input"),
    "_gelu_backward": lambda _, a: (
        "gelu_backward.default", (a["gradient"], a["input"]), {"approximate": a["approximate"]}
    ),
    "_convolution_weight_backward": _convolution_backward,
    "_max_pool": _max_pool, "_avg_pool": _avg_pool, "_adaptive_avg_pool": _adaptive_avg_pool,
    "_attention": _attention, "_attention_backward": _attention_backward,
    **dict.fromkeys([f"{kind}_pool{count}d" for kind in ("max", "avg") for count in (1, 2, 3)], _pool),
    **dict.fromkeys(("mse_loss", "smooth_l1_loss", "huber_loss"), _loss),
    "norm": _norm, "batch_norm": _batch_norm, "embedding": _embedding, "nonzero": _nonzero,
    "slice": _same("slice.Tensor", "input", "dim", "start", "end", "step"),
    "select": _same("select.int", "input", "dim", "index"),
    "transpose": _same("transpose.int", "input", "dim0", "dim1"),
    "empty": lambda _, a: ("empty.memory_format", (a["size"],), {k: a[k] for k in ("dtype", "device")}),
    "index": _same("index.Tensor", "input", "indices"),
    "where": _same("where.self", "condition", "input", "other"),
    "div.mode": lambda name, a: (
        f"{name}.Tensor_mode", (a["input"], a["other"]), {"rounding_mode": a["rounding_mode"]}
    ),
    "_nll_loss_forward": lambda _, a: (
        "nll_loss_forward.default",
        (a["input"], a["target"], a["weight"], REDUCTIONS.index(a["reduction"]), a["ignore_index"]), {},
    ),
}  # fmt: skip


def aten_call(op: Op, bound: tuple[Any, ...]) -> AtenCall:
    """Return PyTorch's operator for a call of an operation, and the arguments as it takes them."""
    base = op.base
    arguments = dict(zip([param.name for param in op.params], map(_listed, bound), strict=True))
    suffix = "_" if op.form == "inplace" else ""
    outs = [arguments.pop(param.name) for param in op.params[len(base.params) :]]
    public = base.public
    name = f"{public.removesuffix('_')}_" if suffix else public
    rule = None if suffix and not public.startswith(tuple(_RULES)) else _RULES.get(base.name) or _RULES.get(public)
    if rule is not None and not outs:
        try:
            return _chosen(*rule(name, arguments))
        except (OperatorError, AttributeError, KeyError):
            pass  # PyTorch has no such overload, as for an operator of which only one device has it
    return _by_schema(op, name, arguments, outs)


def _listed(value: Any) -> Any:
    return list(value) if value.__class__ is tuple else value


def _chosen(qualified: str, args: tuple[Any, ...], kwargs: Named) -> AtenCall:
    name, _, overload_name = qualified.partition(".")
    known = packet(name)
    if known is None:
        raise KeyError(qualified)
    overload = getattr(known, overload_name)
    if overload._operator.compute is None:
        raise KeyError(qualified)
    given = tuple([_listed(value) for value in args])
    return overload, *overload._operator.binder.bind(given, kwargs)


def _by_schema(op: Op, name: str, arguments: Named, outs: list[Any]) -> AtenCall:
    count = op.base.positional
    args = tuple(list(arguments.values())[:count])
    kwargs = {key: value for key, value in list(arguments.items())[count:] if value is not None}
    if outs:
        kwargs["out"] = outs[0] if len(outs) == 1 else tuple(outs)
    known = packet(name)
    if known is not None and known._compute is not None:
        try:
            overload = None
            if not outs:
                other = arguments.get("other")
                wanted = "Tensor" if name.rstrip("_") in _TENSOR or isinstance(other, Tensor) else "Scalar"
                if name.rstrip("_") in _TENSOR or name.rstrip("_") in _BY_OTHER or name.rstrip("_") == "div":
                    wanted = "Tensor" if name.rstrip("_") == "div" else wanted
                    overload = known.made.get(wanted)
            chosen = _first_that_takes([overload] if overload else known.made.values(), _trimmed(op, args), kwargs)
            if not name.startswith("_") or len(chosen[1]) == len(args):  # internal operations have no defaults
                return chosen
        except OperatorError:
            pass
    return own_overload(op), args, kwargs


def _first_that_takes(overloads: Iterable[Any], args: tuple[Any, ...], kwargs: Named) -> AtenCall:
    """Return the first of the overloads that takes the arguments, tensors as tensors. Raises OperatorError for none."""
    for overload in overloads:
        arguments = overload._operator.schema.arguments
        pairs = [*zip(arguments, args, strict=False), *[(a, kwargs[a.name]) for a in arguments if a.name in kwargs]]
        if any([isinstance(value, Tensor) and not argument.type.is_tensor for argument, value in pairs]):
            continue
        try:
            return overload, *overload._operator.binder.bind(args, kwargs)
        except OperatorError:
            continue
    raise OperatorError("no overload takes these arguments")


def _trimmed(op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Leave out arguments at the end that are None by default: some overloads of PyTorch's have no such parameter."""
    params = op.params
    end = len(args)
    while end and args[end - 1] is None and params[end - 1].default is None:
        end -= 1
    return args[:end]


_OTHER_NAMES: Final = {"item": "_local_scalar_dense"}


def function_call(public: str, args: tuple[Any, ...], kwargs: Named) -> AtenCall:
    """Return the operator of a call by a public name whose arguments no operation of telegrad's takes."""
    known = packet(_OTHER_NAMES.get(public, public))
    if known is not None and known._compute is not None:
        try:
            return _first_that_takes(known.made.values(), args, kwargs)
        except OperatorError:
            pass
    return own_overload(public, function(public)), args, kwargs
