"""What each element-wise operation computes of one element, as a C++ expression over the names of its parameters.

``T`` is the type that operands and numbers come in, ``OUT`` that of the result. An expression that depends on
attributes is a function of them, which may also change the numbers that the kernel is given. Knows nothing of shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType


class Whole(NamedTuple):
    """A number that is a 64-bit integer in the kernel, whatever is computed in."""

    value: int


class Chosen(NamedTuple):
    """An expression for certain attributes: its text, numbers beside or instead of the arguments', and what ``T`` is
    where it is not the type that the contract computes in.
    """

    text: str
    numbers: Mapping[str, Any] = {}
    compute: DType | None = None


Attributes = Mapping[str, Any]
Choice = Callable[[Attributes, DType, DType], "Chosen | None"]
"""Of the arguments by name, the type that is computed in, and the result's; None where a generic kernel must run."""


class Work(NamedTuple):
    """What an element takes beside its memory: how many vectors a thread works on at a time, also for results in half
    precision, and whether so many instructions are called as a function, to compile fast.
    """

    vectors: int = 1
    half_vectors: int = 1
    is_function: bool = False


LIGHT = Work()
BUSY = Work(1, 2)
BUSIER = Work(4, 2)
HEAVY = Work(is_function=True)


class Expression(NamedTuple):
    """What an operation computes of one element."""

    choose: Choice
    work: Work = LIGHT


EXPRESSIONS: dict[str, Expression] = {}


def define(names: str, choice: str | Choice, work: Work = LIGHT) -> None:
    """File an expression under the names of operations; in a text, ``{name}`` is the operation's name."""
    for name in names.split():
        EXPRESSIONS[name] = Expression(_always(choice, name), work)


def _always(choice: str | Choice, name: str) -> Choice:
    if not isinstance(choice, str):
        return choice
    chosen = Chosen(choice.replace("{name}", name))
    return lambda attributes, compute, out: chosen


def _scaled(plain: str, scaled: str, factor: str) -> Choice:
    """``scaled`` where an attribute is not 1."""
    return lambda a, compute, out: Chosen(plain if a[factor] == 1 else scaled)


define("add", _scaled("input + other", "input + (T)(other * alpha)", "alpha"))
define("sub", _scaled("input - other", "input - (T)(other * alpha)", "alpha"))
define("rsub", _scaled("other - input", "other - (T)(input * alpha)", "alpha"))
define("mul", "input * other")
define("div", "input / other")


def _divided(a: Attributes, compute: DType, out: DType) -> Chosen:
    if a["rounding_mode"] is None:
        return Chosen("input / other")
    if a["rounding_mode"] == "floor":
        return Chosen("floor_div(input, other)")
    # The quotient is a number of the result's type before it is cut.
    return Chosen("trunc(cast<T>(cast<OUT>(input / other)))" if compute.category == dtypes.FLOAT else _CUT)


_CUT = "trunc_div(input, other)"
define("div.mode", _divided)
define("floor_divide", "floor_div(input, other)")
define("remainder", "remainder_of(input, other)")
define("fmod", "fmod_of(input, other)")

_POWERS = {2: "input * input", 3: "input * input * input", 0.5: "sqrt(input)"}


def _power(a: Attributes, compute: DType, out: DType) -> Chosen:
    exponent = a["exponent"]
    is_number = isinstance(exponent, (bool, int, float, complex))
    special = _POWERS.get(exponent) if is_number and compute.category >= dtypes.FLOAT else None
    return Chosen(special or "pow_of(input, exponent)")


define("pow", _power, BUSIER)
define("neg", "-input")
define("abs", "abs_of(input)")
define("sign sgn", "sign(input)")
define("square", "input * input")
define("reciprocal", "cast<T>(1) / input")
define("sqrt", "sqrt(input)")
define("rsqrt", "rsqrt_of(input)")
define("hypot copysign atan2", "{name}(input, other)")
define(
    "lerp",
    "abs_of(weight) < 0.5f ? input + weight * (end - input) : end - (end - input) * (cast<T>(1) - weight)",
)
define("addcmul", _scaled("input + (T)(tensor1 * tensor2)", "input + (T)((T)(tensor1 * value) * tensor2)", "value"))
define("addcdiv", _scaled("input + tensor1 / tensor2", "input + tensor1 / tensor2 * value", "value"))

define("maximum", "maximum(input, other)")
define("minimum", "minimum(input, other)")
define("fmax", "fmax_of(input, other)")
define("fmin", "fmin_of(input, other)")


def _clamped(a: Attributes, compute: DType, out: DType) -> Chosen:
    if a["max"] is None:
        return Chosen("maximum(input, min)")
    return Chosen("minimum(input, max)" if a["min"] is None else "clamp(input, min, max)")


define("clamp", _clamped)
define("clamp_min", "maximum(input, min)")
define("clamp_max", "minimum(input, max)")

define("exp exp2 expm1", "{name}(input)")
define("log log2 log10 log1p sin cos tan asin acos atan", "{name}(input)", BUSY)
define("sinh cosh tanh asinh acosh atanh erf erfc erfinv", "{name}(input)", BUSY)
define("lgamma", "lgamma(input)", HEAVY)
define("digamma", "(T)digamma_of(input)", HEAVY)
define("_polygamma", "polygamma_of(input, (int)n)", HEAVY)
define("_tanh_backward", "gradient * conj(cast<T>(1) - result * result)")
define("sigmoid", "sigmoid_of(input)")
define("_sigmoid_backward", "gradient * conj((cast<T>(1) - result) * result)")


def _logit(a: Attributes, compute: DType, out: DType) -> Chosen:
    if a["eps"] is None:
        return Chosen("log(input / ((T)1 - input))")
    clamped = "clamp(input, eps, one_less)"
    return Chosen(f"log({clamped} / ((T)1 - {clamped}))", {"one_less": 1 - a["eps"]})


define("logit", _logit)
define("logaddexp", "logaddexp(input, other)", BUSIER)
define("xlogy", "input == (T)0 && other == other ? (T)0 : input * log(other)")
define("floor", "floor_of(input)")
define("ceil", "ceil_of(input)")
define("trunc", "trunc_of(input)")
define("frac", "input - trunc(input)")


def _rounded(a: Attributes, compute: DType, out: DType) -> Chosen:
    decimals = a["decimals"]
    if decimals == 0:
        return Chosen("round_of(input)")
    places = abs(decimals)
    factor = {"factor": 10.0**places if places <= 308 else math.inf}
    return Chosen("rint(input * factor) / factor" if decimals > 0 else "rint(input / factor) * factor", factor)


define("round", _rounded)
define("deg2rad", lambda a, compute, out: Chosen("input * factor", {"factor": math.pi / 180}))
define("rad2deg", lambda a, compute, out: Chosen("input * factor", {"factor": 180 / math.pi}))

_LARGEST = {
    dtypes.float16: 65504.0, dtypes.bfloat16: 3.3895313892515355e38, dtypes.float32: 3.4028234663852886e38,
    dtypes.float64: 1.7976931348623157e308,
}  # fmt: skip


def _numbers_only(a: Attributes, compute: DType, out: DType) -> Chosen:
    largest = _LARGEST.get(out.to_real())
    if largest is None:
        return Chosen("input")
    nan, posinf, neginf = a["nan"], a["posinf"], a["neginf"]
    replacements = {
        "nan": nan or 0.0,
        "posinf": largest if posinf is None else posinf,
        "neginf": -largest if neginf is None else neginf,
    }
    return Chosen("nan_to_num(input, nan, posinf, neginf)", replacements)


define("nan_to_num", _numbers_only)

for _name, _sign in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
    define(_name, f"input {_sign} other")


def _close(a: Attributes, compute: DType, out: DType) -> Chosen:
    both = " || (is_nan(input) && is_nan(other))" if a["equal_nan"] else ""
    wide = compute if compute.category >= dtypes.FLOAT else dtypes.float64
    return Chosen(f"is_close(input, other, rtol, atol){both}", compute=wide)


define("isclose", _close)
define("isnan", "is_nan(input)")
define("isinf", "is_inf(input)")
define("isfinite", "is_finite(input)")
define("isposinf", "is_inf(input) && input > (T)0")
define("isneginf", "is_inf(input) && input < (T)0")
define("signbit", "sign_bit(input)")
define("logical_and", "to_bool(input) && to_bool(other)")
define("logical_or", "to_bool(input) || to_bool(other)")
define("logical_xor", "to_bool(input) != to_bool(other)")
define("logical_not", "!to_bool(input)")
define("bitwise_and", "input & other")
define("bitwise_or", "input | other")
define("bitwise_xor", "input ^ other")
define("bitwise_not", "bitwise_not(input)")
define("bitwise_left_shift", "shift_left(input, other)")
define("bitwise_right_shift", "shift_right(input, other)")
define("where", "condition ? input : other")
define("masked_fill masked_fill.Tensor", "mask ? value : input")

define("conj_physical", "conj(input)")


_ANGLE = "input < (T)0 ? (T)3.14159265358979323846 : input != input ? input : (T)0"


def _angle(a: Attributes, compute: DType, out: DType) -> Chosen:
    return Chosen("angle_of(input)" if compute.is_complex else _ANGLE)


define("angle", _angle)
define("complex", "complex_t<T>{real, imag}")
define("polar", "complex_t<T>{abs * cos(angle), abs * sin(angle)}")

define("relu", "maximum(input, (T)0)")
define("_relu_backward", "result <= (T)0 ? (T)0 : gradient")


def _by_approximation(exact: str, approximate: str) -> Choice:
    return lambda a, compute, out: Chosen(exact if a["approximate"] == "none" else approximate)


define("gelu", _by_approximation("input * normal_cdf(input)", "input * tanh_normal_cdf(input)"), BUSY)
define(
    "_gelu_backward", _by_approximation("gradient * gelu_derivative(input)", "gradient * tanh_gelu_derivative(input)")
)
define("silu", "input * sigmoid_of(input)")
define(
    "_silu_backward",
    "gradient * conj(((cast<T>(1) - sigmoid_of(input)) * input + cast<T>(1)) * sigmoid_of(input))",
)
define("leaky_relu", "input > (T)0 ? input : input * negative_slope")


def _exponential(alpha: float, scale: float, input_scale: float) -> Chosen:
    return Chosen(
        "elu(input, scale, negative_scale, input_scale)",
        {"scale": scale, "negative_scale": alpha * scale, "input_scale": input_scale},
    )


define("elu", lambda a, compute, out: _exponential(a["alpha"], 1.0, 1.0))
define("selu", lambda a, compute, out: _exponential(1.6732632423543772, 1.0507009873554805, 1.0))
define("celu", lambda a, compute, out: _exponential(a["alpha"], 1.0, 1.0 / a["alpha"]))
define("softplus", "input * beta > threshold ? input : log1p(exp(input * beta)) / beta", BUSIER)
define("hardtanh", "clamp(input, min_val, max_val)")
define("relu6", "clamp(input, (T)0, (T)6)")
define("hardsigmoid", "clamp(input + (T)3, (T)0, (T)6) / (T)6")
define("hardswish", "clamp(input + (T)3, (T)0, (T)6) * input / (T)6")
define("mish", "input * tanh(logaddexp(input, (T)0))", BUSIER)
define("logsigmoid", "minimum(input, (T)0) - log1p(exp(-fabs(input)))")
define("threshold", "input <= threshold ? value : input")
define("hardshrink", "input >= -lambd && input <= lambd ? (T)0 : input")
define("softshrink", "input - clamp(input, -lambd, lambd)")
define("native_dropout_backward", "grad_output * cast<T>(mask) * scale")
define("_squared_error", "(input - target) * (input - target)")
define("_bce_with_logits", "maximum(input, (T)0) - input * target + log1p(exp(-fabs(input)))", BUSIER)


def _huber(a: Attributes, compute: DType, out: DType) -> Chosen | None:
    size = "abs_of(input - target)"
    text = f"{size} <= delta ? (T)0.5 * {size} * {size} : delta * ({size} - (T)0.5 * delta)"
    return None if compute.is_complex else Chosen(text)


define("_huber_error", _huber)

OF_ANY_NUMBER = frozenset((
    "add", "sub", "rsub", "mul", "div", "div.mode", "floor_divide", "remainder", "fmod", "pow", "lerp", "addcmul",
    "addcdiv", "clamp", "clamp_min", "clamp_max", "eq", "ne", "lt", "le", "gt", "ge", "where", "masked_fill", "xlogy",
))  # fmt: skip
"""Operations of which every float that varies (``replay.varying``) leads to the same text and the same result metas."""
