"""Expressions of functions that few programs call, and the CUDA functions that these need beside the common ones."""

from __future__ import annotations

import math
from typing import Final

from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType

from .expressions import BUSIER, BUSY, HEAVY, Attributes, Chosen, define

RARE: Final = r"""
// The product of the first two minus that of the others, each rounded for itself, so that equal products leave nothing.
FUNCTION T rare_difference(T a, T b, T c, T d) { return a * b - c * d; }
template <> __device__ __forceinline__ float rare_difference(float a, float b, float c, float d) {
    return __fsub_rn(__fmul_rn(a, b), __fmul_rn(c, d));
}
template <> __device__ __forceinline__ double rare_difference(double a, double b, double c, double d) {
    return __dsub_rn(__dmul_rn(a, b), __dmul_rn(c, d));
}
FUNCTION T rare_logaddexp2(T a, T b) {
    if (a == b) return a + (T)1;
    T apart = a - b;
    const T scale = (T)1.44269504088896340736;
    return apart > (T)0 ? a + log1p(exp2(-apart)) * scale : apart <= (T)0 ? b + log1p(exp2(apart)) * scale : apart;
}
FUNCTION T rare_gcd(T a, T b) {
    while (b != (T)0) {
        T left = fmod_of(a, b);
        a = b;
        b = left;
    }
    return abs_of(a);
}
FUNCTION T rare_lcm(T a, T b) {
    T common = rare_gcd(a, b);
    return common == (T)0 ? (T)0 : abs_of((T)(trunc_div(a, common) * b));
}
"""
"""Functions whose names begin with ``rare_``: a text has them where its expression names one."""

define("heaviside", "input == (T)0 ? values : input > (T)0 ? (T)1 : (T)0")
define("gcd lcm", "rare_{name}(input, other)", HEAVY)
define("logaddexp2", "rare_logaddexp2(input, other)", BUSIER)
define(
    "sinc",
    lambda a, compute, out: Chosen(
        "input == cast<T>(0) ? cast<T>(1) : sin(input * pi) / (input * pi)", {"pi": math.pi}
    ),
    BUSY,
)


def _nextafter(a: Attributes, compute: DType, out: DType) -> Chosen | None:
    return Chosen("nextafter(input, other)") if out in (dtypes.float32, dtypes.float64) else None


define("nextafter", _nextafter)
for _name, _function in {
    "i0": "cyl_bessel_i0", "special_i1": "cyl_bessel_i1", "special_bessel_j0": "j0", "special_bessel_j1": "j1",
    "special_bessel_y0": "y0", "special_bessel_y1": "y1",
}.items():  # fmt: skip
    define(_name, f"is_finite(input) ? {_function}(input) : NAN_OF(T)", HEAVY)  # PyTorch's are not numbers at infinity
define("special_erfcx", "erfcx(input)", HEAVY)
define("special_ndtr", "normcdf(input)", BUSY)
define("special_ndtri", "normcdfinv(input)", HEAVY)
define(
    "special_entr", "input > (T)0 ? -input * log(input) : input == (T)0 ? (T)0 : input != input ? input : -INF_OF(T)"
)
define("special_xlog1py", "input == (T)0 && other == other ? (T)0 : input * log1p(other)")
