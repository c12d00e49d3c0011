"""CUDA functions of one complex element. Infinities, NaN and signed zeros give what C's and NumPy's functions give.

Exponential, logarithmic, trigonometric and hyperbolic functions and powers of ``complex64`` are computed in double
precision and rounded once; arithmetic is in the type itself.

W. Kahan, Branch cuts for complex elementary functions (1987). R. L. Smith, Algorithm 116: complex division (1962).
"""

from __future__ import annotations

COMPLEX = r"""
#define OF_COMPLEX template <class R> __device__ __forceinline__
#define Z complex_t<R>
#define HALF_PI 1.57079632679489661923
OF_COMPLEX Z operator+(Z a, Z b) { return {a.re + b.re, a.im + b.im}; }
OF_COMPLEX Z operator-(Z a, Z b) { return {a.re - b.re, a.im - b.im}; }
OF_COMPLEX Z operator-(Z a) { return {-a.re, -a.im}; }
OF_COMPLEX Z operator*(Z a, Z b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
OF_COMPLEX Z operator/(Z a, Z b) {
    const R re = fabs(b.re), im = fabs(b.im);
    if (re == 0 && im == 0) return {a.re / re, a.im / re};
    if (re >= im) {
        const R ratio = b.im / b.re, scale = (R)1 / (b.re + b.im * ratio);
        return {(a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale};
    }
    const R ratio = b.re / b.im, scale = (R)1 / (b.im + b.re * ratio);
    return {(a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale};
}
OF_COMPLEX bool operator==(Z a, Z b) { return a.re == b.re && a.im == b.im; }
OF_COMPLEX bool operator!=(Z a, Z b) { return a.re != b.re || a.im != b.im; }

OF_COMPLEX bool nan_at(Z v) { return isnan(v.re) || isnan(v.im); }
OF_COMPLEX bool inf_at(Z v) { return isinf(v.re) || isinf(v.im); }
OF_COMPLEX bool finite_at(Z v) { return isfinite(v.re) && isfinite(v.im); }
OF_COMPLEX bool truth(Z v) { return v.re != 0 || v.im != 0; }
OF_COMPLEX R magnitude(Z v) { return hypot(v.re, v.im); }
OF_COMPLEX R angle_of(Z v) { return atan2(v.im, v.re); }
OF_COMPLEX Z conjugate(Z v) { return {v.re, -v.im}; }
OF_COMPLEX Z direction(Z v) {
    const R length = magnitude(v);
    return length == 0 ? Z{0, 0} : v / Z{length, 0};
}
OF_COMPLEX Z replaced(Z v, Z nan, Z posinf, Z neginf) {
    return {replaced(v.re, nan.re, posinf.re, neginf.re), replaced(v.im, nan.re, posinf.re, neginf.re)};
}
OF_COMPLEX bool close(Z a, Z b, Z rtol, Z atol) {
    return a == b || (finite_at(a) && finite_at(b) && magnitude(a - b) <= atol.re + magnitude(rtol * b));
}

// a product that is 0 where a factor is, whatever the other one
OF_COMPLEX R damped(R a, R b) { return a == 0 || b == 0 ? copysign((R)0, a) * copysign((R)1, b) : a * b; }

__device__ inline c128 wide(c64 v) { return {v.re, v.im}; }
__device__ inline c64 narrow(c128 v) { return {(float)v.re, (float)v.im}; }

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
    const bool is_near_one = x > 0.5 && x < 2 && !nan_at(v);
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
    return {cosh(v.re) * cosine, damped(sinh(v.re), v.im == 0 ? v.im : sine)};
}
__device__ inline c128 sinh(c128 v) {
    double sine, cosine;
    sincos(v.im, &sine, &cosine);
    if (isinf(v.re) && !isfinite(v.im)) return {v.re, NAN_OF(double)};
    return {damped(sinh(v.re), cosine), damped(cosh(v.re), v.im == 0 ? v.im : sine)};
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
__device__ inline bool is_far(c128 v) { return fabs(v.re) > 1e8 || fabs(v.im) > 1e8; }
__device__ inline double far_log(c128 v) { return log(hypot(v.re * 0.5, v.im * 0.5)) + 1.38629436111989061883; }
__device__ inline c128 less_from_one(c128 v) { return {1 - v.re, -v.im}; }
__device__ inline c128 more_than_one(c128 v) { return {1 + v.re, v.im}; }
__device__ inline c128 asin(c128 v) {
    if (is_far(v)) return {atan2(v.re, fabs(v.im)), copysign(far_log(v), v.im)};
    const c128 low = sqrt(less_from_one(v)), high = sqrt(more_than_one(v));
    return {atan2(v.re, (low * high).re), asinh((conjugate(low) * high).im)};
}
__device__ inline c128 acos(c128 v) {
    if (is_far(v)) return {atan2(fabs(v.im), v.re), -copysign(far_log(v), v.im)};
    const c128 low = sqrt(less_from_one(v)), high = sqrt(more_than_one(v));
    return {2 * atan2(low.re, high.re), asinh((conjugate(high) * low).im)};
}
__device__ inline c128 acosh(c128 v) {
    if (is_far(v)) return {far_log(v), atan2(v.im, v.re)};
    const c128 low = sqrt(c128{v.re - 1, v.im}), high = sqrt(more_than_one(v));
    return {asinh((conjugate(low) * high).re), 2 * atan2(low.im, high.re)};
}
__device__ inline c128 asinh(c128 v) { const c128 w = asin(c128{v.im, -v.re}); return {-w.im, w.re}; }
__device__ inline c128 atanh(c128 v) {
    const double x = fabs(v.re), y = v.im;
    if (is_far(v)) {
        const double near = isinf(x) || isinf(y) ? 0 : 1 / (x + y / x * y);
        return {copysign(near, v.re), isnan(y) ? y : copysign(HALF_PI, y)};
    }
    const double re = 0.25 * log1p(4 * x / ((1 - x) * (1 - x) + y * y));
    return {copysign(re, v.re), 0.5 * atan2(2 * y, (1 - x) * (1 + x) - y * y)};
}
__device__ inline c128 atan(c128 v) { const c128 w = atanh(c128{-v.im, v.re}); return {w.im, -w.re}; }

#define BY_DOUBLES(name) __device__ inline c64 name(c64 v) { return narrow(name(wide(v))); }
BY_DOUBLES(log) BY_DOUBLES(sqrt) BY_DOUBLES(cosh) BY_DOUBLES(sinh) BY_DOUBLES(tanh) BY_DOUBLES(sin)
BY_DOUBLES(cos) BY_DOUBLES(tan) BY_DOUBLES(asin) BY_DOUBLES(acos) BY_DOUBLES(acosh) BY_DOUBLES(asinh)
BY_DOUBLES(atanh) BY_DOUBLES(atan)
// each factor rounded, and 88 split off an exponent that overflows alone: what C's cexpf and cpowf round to
__device__ inline c64 exp(c64 v) {
    if (v.im == 0 || !isfinite(v.im) || !isfinite(v.re)) return narrow(exp(wide(v)));
    const bool is_large = v.re > 88;
    const float scale = is_large ? (float)exp(88.0) : 1.0f, length = (float)exp((double)(is_large ? v.re - 88 : v.re));
    return {length * (scale * (float)cos((double)v.im)), length * (scale * (float)sin((double)v.im))};
}

OF_COMPLEX Z exp2(Z v) {
    const R factor = (R)0.69314718055994530942;
    return exp(Z{v.re * factor, v.im * factor});
}
OF_COMPLEX Z expm1(Z v) {
    const R half = sin(v.im * (R)0.5);
    return {expm1(v.re) * cos(v.im) - 2 * half * half, exp(v.re) * sin(v.im)};
}
OF_COMPLEX Z scaled_log(Z v, R factor) {
    const Z found = log(v);
    return {found.re * factor, found.im * factor};
}
OF_COMPLEX Z log2(Z v) { return scaled_log(v, (R)1.44269504088896340736); }
OF_COMPLEX Z log10(Z v) { return scaled_log(v, (R)0.43429448190325182765); }
OF_COMPLEX Z log1p(Z v) { return {log(hypot(v.re + 1, v.im)), atan2(v.im, v.re + 1)}; }
OF_COMPLEX Z sigmoid_of(Z v) { return Z{1, 0} / (Z{1, 0} + exp(-v)); }
OF_COMPLEX Z root_inverse(Z v) { return Z{1, 0} / sqrt(v); }
OF_COMPLEX Z log_sum(Z a, Z b) {
    const bool is_first = a.re >= b.re;
    return (is_first ? a : b) + log1p(exp(is_first ? b - a : a - b));
}
OF_COMPLEX Z power(Z base, Z exponent) {
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
