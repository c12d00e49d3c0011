"""Element-wise operations that compiled loops compute of vectors: in single precision, and in half precision.

A rule says which loop takes an operation's operands, vectors or numbers, and which numbers it gets besides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from server.engine import compiled
from server.engine.device import threads

from .halves import words

Array = Any


class Call(NamedTuple):
    """A loop's name, the vectors that it reads, and the numbers that it gets after them."""

    loop: str
    vectors: tuple[Array, ...]
    numbers: tuple[float, ...] = ()


Rule = Callable[..., "Call | None"]
"""Takes operands and options as the operation does; None where no loop takes them."""


def _is_vector(operand: Any) -> bool:
    return operand.__class__ is np.ndarray


def _plain(loop: str) -> Rule:
    return lambda *operands: Call(loop, operands) if all(map(_is_vector, operands)) else None


def _by_form(loop: str) -> Rule:
    """Of GELU, whose form is an option."""
    return lambda *operands, approximate: Call(
        loop.replace("gelu", "gelu_tanh" if approximate == "tanh" else "gelu"), operands
    )


def _sum(x: Any, y: Any, alpha: Any) -> Call | None:
    """x + alpha * y"""
    if not _is_vector(x):
        return Call("affine", (y,), (alpha, x)) if alpha in (1, -1) else None
    return Call("add", (x, y), (alpha,)) if _is_vector(y) else Call("affine", (x,), (1, alpha * y))


def _product(x: Any, y: Any) -> Call:
    if _is_vector(x) and _is_vector(y):
        return Call("mul", (x, y))
    return Call("affine", (x,), (y, -0.0)) if _is_vector(x) else Call("affine", (y,), (x, -0.0))


def _quotient(x: Any, y: Any) -> Call | None:
    if not _is_vector(x):
        return None
    return Call("div", (x, y)) if _is_vector(y) else Call("div_number", (x,), (y,))


def _bounded(x: Any, low: Any, high: Any) -> Call | None:
    """Between two numbers, of which either may be missing."""
    bounds = (-math.inf if low is None else low), (math.inf if high is None else high)
    return Call("clamp", (x,), bounds) if all([bound.__class__ in (int, float) for bound in bounds]) else None


def _power(x: Any, exponent: Any) -> Call | None:
    return Call("mul", (x, x)) if _is_vector(x) and exponent.__class__ in (int, float) and exponent == 2 else None


def _product_added(x: Any, y: Any, z: Any, *, value: Any) -> Call | None:
    """x + value * y * z"""
    return Call("addcmul", (x, y, z), (value,)) if all(map(_is_vector, (x, y, z))) else None


def _between(x: Any, y: Any, weight: Any) -> Call | None:
    return Call("lerp", (x, y), (weight,)) if _is_vector(x) and _is_vector(y) and not _is_vector(weight) else None


_RULES: dict[str, Rule] = {
    "exp": _plain("exp"), "tanh": _plain("tanh"), "sigmoid": _plain("sigmoid"), "relu": _plain("relu"),
    "sqrt": _plain("sqrt"), "rsqrt": _plain("rsqrt"), "silu": _plain("silu"), "_silu_backward": _plain("silu_backward"),
    "_relu_backward": _plain("relu_backward"), "_tanh_backward": _plain("tanh_backward"),
    "_sigmoid_backward": _plain("sigmoid_backward"), "gelu": _by_form("gelu"),
    "_gelu_backward": _by_form("gelu_backward"),
    "neg": lambda x: Call("affine", (x,), (-1, -0.0)), "erf": _plain("erf"), "abs": _plain("absolute"),
    "sign": _plain("sign"), "floor": _plain("floor"), "ceil": _plain("ceil"), "hardswish": _plain("hardswish"),
    "round": lambda x, *, decimals: Call("rint", (x,)) if decimals == 0 else None,
    "relu6": lambda x: _bounded(x, 0, 6), "hardtanh": _bounded, "clamp": _bounded,
    "leaky_relu": lambda x, slope: Call("leaky_relu", (x,), (slope,)),
    "maximum": _plain("maximum"), "minimum": _plain("minimum"), "pow": _power, "square": lambda x: _power(x, 2),
    "addcmul": _product_added, "lerp": _between,
    "add": lambda x, y, *, alpha: _sum(x, y, alpha), "sub": lambda x, y, *, alpha: _sum(x, y, -alpha),
    "rsub": lambda x, y, *, alpha: _sum(y, x, -alpha), "mul": _product, "div": _quotient,
}  # fmt: skip
_LARGEST = 3e38


def rule_of(name: str, options: Mapping[str, Any]) -> Callable[[Sequence[Any]], Call | None] | None:
    """What finds the loop for an operation's operands, given its other arguments; None where there is no rule."""
    rule = _RULES.get(name)
    return None if rule is None else lambda operands: rule(*operands, **options)


def run(rule: Callable[[Sequence[Any]], Call | None], operands: Sequence[Any], out: Array) -> bool:
    """Write vectors' result on all threads; False, and nothing written, where no compiled loop does."""
    loops = compiled.kernels("elementwise")
    call = None if loops is None else rule(operands)
    if call is None or not all([abs(number) < _LARGEST or abs(number) == math.inf for number in call.numbers]):
        return False
    loop = getattr(loops, call.loop)[out.dtype.char]
    vectors, out = [words(vector) for vector in call.vectors], words(out)
    shares = threads.shares_of(out.size, out.nbytes * (1 + len(vectors)), threads.VECTOR)
    if len(shares) == 1:
        loop(*vectors, *call.numbers, out)
        return True
    calls = [(*[vector[share] for vector in vectors], *call.numbers, out[share]) for share in shares]
    threads.run_loop(loop, calls)
    return True
