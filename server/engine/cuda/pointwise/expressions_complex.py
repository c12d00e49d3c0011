"""CUDA functions of one complex element. Infinities, NaN and signed zeros give what C's and NumPy's functions give.

Exponential, logarithmic, trigonometric and hyperbolic functions and powers of ``complex64`` are computed in double
precision and rounded once; arithmetic is in the type itself.

W. Kahan, Branch cuts for complex elementary functions (1987). R. L. Smith, Algorithm 116: complex division (1962).
"""

from __future__ import annotations

COMPLEX = r"""
#define COMPLEX_FUNCTION template <class R> __device__ __forceinline__
#define Z complex_t<R>
#define HALF_PI 1.57079632679489661923
COMPLEX_FUNCTION Z operator+(Z a, Z b) { return {a.re + b.re, a.im + b.im}; }
COMPLEX_FUNCTION Z operator-(Z a, Z b) { return {a.re - b.re, a.im - b.im}; }
COMPLEX_FUNCTION Z operator-(Z a) { return {-a.re, -a.im}; }
COMPLEX_FUNCTION Z operator*(Z a, Z b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
COMPLEX_FUNCTION Z operator/(Z a, Z b) {
    const R re = fabs(b.re), im = fabs(b.im);
    if (re == 0 && im == 0) return {a.re / re, a.im / re};
    if (re >= im) {
        const R ratio = b.im / b.re, scale = (R)1 / (b.re + b.im * ratio);
        return {(a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale};
    }
    const R ratio = b.re / b.im, scale = (R)1 / (b.im + b.re * ratio);
    return {(a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale};
}
COMPLEX_FUNCTION bool operator==(Z a, Z b) { return a.re == b.re && a.im == b.im; }
COMPLEX_FUNCTION bool operator!=(Z a, Z b) { return a.re != b.re || a.im != b.im; }

COMPLEX_FUNCTION bool is_nan(Z v) { return isnan(v.re) || isnan(v.im); }
COMPLEX_FUNCTION bool is_inf(Z v) { return isinf(v.re) || isinf(v.im); }
COMPLEX_FUNCTION bool is_finite(Z v) { return isfinite(v.re) && isfinite(v.im); }
COMPLEX_FUNCTION bool to_bool(Z v) { return v.re != 0 || v.im != 0; }
COMPLEX_FUNCTION R abs_of(Z v) { return hypot(v.re, v.im); }
COMPLEX_FUNCTION R angle_of(Z v) { return atan2(v.im, v.re); }
COMPLEX_FUNCTION Z conj(Z v) { return {v.re, -v.im}; }
COMPLEX_FUNCTION Z sign(Z v) {
    const R length = abs_of(v);
    return length == 0 ? Z{0, 0} : v / Z{length, 0};
}
COMPLEX_FUNCTION Z nan_to_num(Z v, Z nan, Z posinf, Z neginf) {
    return {nan_to_num(v.re, nan.re, posinf.re, neginf.re), nan_to_num(v.im, nan.re, posinf.re, neginf.re)};
}
COMPLEX_FUNCTION bool is_close(Z a, Z b, Z rtol, Z atol) {
    return a == b || (is_finite(a) && is_finite(b) && abs_of(a - b) <= atol.re + abs_of(rtol * b));
}

// a product that is 0 where a factor is, whatever the other one
COMPLEX_FUNCTION R zero_preserving_mul(R a, R b) {
    return a == 0 || b == 0 ? copysign((R)0, a) * copysign((R)1, b) : a * b;
}

__device__ inline c128 to_c128(c64 v) { return {v.re, v.im}; }
__device__ inline c64 to_c64(c128 v) { return {(float)v.re, (float)v.im}; }

__device__ inline c128 exp(c128 v) {
    if (v.im == 0) return {exp(v.re), v.im};
    if (isinf(v.re) && !isfinite(v.im)) return v.re < 0 ? c128{0, 0} : c128{v.re, NAN_OF(double)};
    double sine, cosine;
    sincos(v.im, &sine, &cosine);
    if (v.re < 700) {
        const double length = exp(v.re);
        return {length * cosine, length * sine};
    }
    const double half = exp(v.re * 0.5);
    return {half * cosine * half, half * sine * half};
}
__device__ inline c128 log(c128 v) {
    const double x = fmax(fabs(v.re), fabs(v.im)), y = fmin(fabs(v.re), fabs(v.im));
    const bool is_near_one = x > 0.5 && x < 2 && !is_nan(v);
    const double length = is_near_one ? 0.5 * log1p((x - 1) * (x + 1) + y * y) : log(hypot(v.re, v.im));
    return {length, atan2(v.im, v.re)};
}
__device__ inline c128 sqrt(c128 v) {
    if (isinf(v.im)) return {INF_OF(double), v.im};
    if (isinf(v.re)) {
        const double rest = isnan(v.im) ? v.im : 0;
        return v.re > 0 ? c128{v.re, copysign(rest, v.im)} : c128{rest, copysign(v.re, v.im)};
    }
    if (v.re == 0 && v.im == 0) return {0, v.im};
    const double most = fmax(fabs(v.re), fabs(v.im));
    const double scale = most > 1e300 ? 0.25 : most < 1e-290 ? 0x1p108 : 1;
    const double back = most > 1e300 ? 2 : most < 1e-290 ? 0x1p-54 : 1;
    v = {v.re * scale, v.im * scale};
    const double root = sqrt((fabs(v.re) + hypot(v.re, v.im)) * 0.5);
    if (v.re >= 0) return {root * back, v.im / (2 * root) * back};
    return {fabs(v.im) / (2 * root) * back, copysign(root, v.im) * back};
}
__device__ inline c128 cosh(c128 v) {
    double sine, cosine;
    sincos(v.im, &sine, &cosine);
    if (isinf(v.re) && !isfinite(v.im)) return {INF_OF(double), NAN_OF(double)};
    return {cosh(v.re) * cosine, zero_preserving_mul(sinh(v.re), v.im == 0 ? v.im : sine)};
}
__device__ inline c128 sinh(c128 v) {
    double sine, cosine;
    sincos(v.im, &sine, &cosine);
    if (isinf(v.re) && !isfinite(v.im)) return {v.re, NAN_OF(double)};
    return {zero_preserving_mul(sinh(v.re), cosine), zero_preserving_mul(cosh(v.re), v.im == 0 ? v.im : sine)};
}
__device__ inline c128 tanh(c128 v) {
    if (fabs(v.re) > 22) {
        if (!isfinite(v.im)) return isinf(v.re) ? c128{copysign(1.0, v.re), 0} : c128{v.im - v.im, v.im - v.im};
        return {copysign(1.0, v.re), 4 * sin(v.im) * cos(v.im) * exp(-2 * fabs(v.re))};
    }
    if (v.im == 0) return {tanh(v.re), v.im};
    const double slope = tan(v.im), beta = 1 + slope * slope, s = sinh(v.re), rho = sqrt(1 + s * s);
    const double below = 1 + beta * s * s;
    return {beta * rho * s / below, slope / below};
}
__device__ inline c128 sin(c128 v) { const c128 w = sinh(c128{-v.im, v.re}); return {w.im, -w.re}; }
__device__ inline c128 cos(c128 v) { return cosh(c128{-v.im, v.re}); }
__device__ inline c128 tan(c128 v) { const c128 w = tanh(c128{-v.im, v.re}); return {w.im, -w.re}; }

// beyond, logarithms of twice the number take over; also for infinities
__device__ inline bool is_huge(c128 v) { return fabs(v.re) > 1e8 || fabs(v.im) > 1e8; }
__device__ inline double log_of_huge(c128 v) { return log(hypot(v.re * 0.5, v.im * 0.5)) + 1.38629436111989061883; }
__device__ inline c128 one_minus(c128 v) { return {1 - v.re, -v.im}; }
__device__ inline c128 one_plus(c128 v) { return {1 + v.re, v.im}; }
__device__ inline c128 asin(c128 v) {
    if (is_huge(v)) return {atan2(v.re, fabs(v.im)), copysign(log_of_huge(v), v.im)};
    const c128 low = sqrt(one_minus(v)), high = sqrt(one_plus(v));
    return {atan2(v.re, (low * high).re), asinh((conj(low) * high).im)};
}
__device__ inline c128 acos(c128 v) {
    if (is_huge(v)) return {atan2(fabs(v.im), v.re), -copysign(log_of_huge(v), v.im)};
    const c128 low = sqrt(one_minus(v)), high = sqrt(one_plus(v));
    return {2 * atan2(low.re, high.re), asinh((conj(high) * low).im)};
}
__device__ inline c128 acosh(c128 v) {
    if (is_huge(v)) return {log_of_huge(v), atan2(v.im, v.re)};
    const c128 low = sqrt(c128{v.re - 1, v.im}), high = sqrt(one_plus(v));
    return {asinh((conj(low) * high).re), 2 * atan2(low.im, high.re)};
}
__device__ inline c128 asinh(c128 v) { const c128 w = asin(c128{v.im, -v.re}); return {-w.im, w.re}; }
__device__ inline c128 atanh(c128 v) {
    const double x = fabs(v.re), y = v.im;
    if (is_huge(v)) {
        const double near = isinf(x) || isinf(y) ? 0 : 1 / (x + y / x * y);
        return {copysign(near, v.re), isnan(y) ? y : copysign(HALF_PI, y)};
    }
    const double re = 0.25 * log1p(4 * x / ((1 - x) * (1 - x) + y * y));
    return {copysign(re, v.re), 0.5 * atan2(2 * y, (1 - x) * (1 + x) - y * y)};
}
__device__ inline c128 atan(c128 v) { const c128 w = atanh(c128{-v.im, v.re}); return {w.im, -w.re}; }

#define VIA_DOUBLE(name) __device__ inline c64 name(c64 v) { return to_c64(name(to_c128(v))); }
VIA_DOUBLE(log) VIA_DOUBLE(sqrt) VIA_DOUBLE(cosh) VIA_DOUBLE(sinh) VIA_DOUBLE(tanh) VIA_DOUBLE(sin)
VIA_DOUBLE(cos) VIA_DOUBLE(tan) VIA_DOUBLE(asin) VIA_DOUBLE(acos) VIA_DOUBLE(acosh) VIA_DOUBLE(asinh)
VIA_DOUBLE(atanh) VIA_DOUBLE(atan)
// each factor rounded, and 88 split off an exponent that overflows alone: what C's cexpf and cpowf round to
__device__ inline c64 exp(c64 v) {
    if (v.im == 0 || !isfinite(v.im) || !isfinite(v.re)) return to_c64(exp(to_c128(v)));
    const bool is_large = v.re > 88;
    const float scale = is_large ? (float)exp(88.0) : 1.0f, length = (float)exp((double)(is_large ? v.re - 88 : v.re));
    return {length * (scale * (float)cos((double)v.im)), length * (scale * (float)sin((double)v.im))};
}

COMPLEX_FUNCTION Z exp2(Z v) {
    const R factor = (R)0.69314718055994530942;
    return exp(Z{v.re * factor, v.im * factor});
}
COMPLEX_FUNCTION Z expm1(Z v) {
    const R half = sin(v.im * (R)0.5);
    return {expm1(v.re) * cos(v.im) - 2 * half * half, exp(v.re) * sin(v.im)};
}
COMPLEX_FUNCTION Z log_times(Z v, R factor) {
    const Z found = log(v);
    return {found.re * factor, found.im * factor};
}
COMPLEX_FUNCTION Z log2(Z v) { return log_times(v, (R)1.44269504088896340736); }
COMPLEX_FUNCTION Z log10(Z v) { return log_times(v, (R)0.43429448190325182765); }
COMPLEX_FUNCTION Z log1p(Z v) { return {log(hypot(v.re + 1, v.im)), atan2(v.im, v.re + 1)}; }
COMPLEX_FUNCTION Z sigmoid_of(Z v) { return Z{1, 0} / (Z{1, 0} + exp(-v)); }
COMPLEX_FUNCTION Z rsqrt_of(Z v) { return Z{1, 0} / sqrt(v); }
COMPLEX_FUNCTION Z logaddexp(Z a, Z b) {
    const bool is_first = a.re >= b.re;
    return (is_first ? a : b) + log1p(exp(is_first ? b - a : a - b));
}
COMPLEX_FUNCTION Z pow_of(Z base, Z exponent) {
    if (exponent == Z{0, 0}) return {1, 0};
    if (base == Z{0, 0}) {
        const bool is_zero = exponent.re > 0 && exponent.im == 0;
        return is_zero ? Z{0, 0} : Z{NAN_OF(R), NAN_OF(R)};
    }
    const int n = fabs(exponent.re) < 100 ? (int)exponent.re : 0;
    if (exponent.im != 0 || n == 0 || exponent.re != n) return exp(exponent * log(base));
    if (n == 1) return base;
    if (n == 2 || n == 3) return n == 2 ? base * base : base * base * base;
    Z found = {1, 0}, square = base;
    for (int left = abs(n); left; left >>= 1) {
        if (left & 1) found = found * square;
        square = square * square;
    }
    return n < 0 ? Z{1, 0} / found : found;
}
#undef Z
"""
