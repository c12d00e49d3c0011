"""CUDA functions of one element that C++ does not have: over real numbers and integers, as Python and NumPy mean them.

``T`` in comments is the type that an operation computes in. Half precision arrives here as float.
"""

from __future__ import annotations

REAL = r"""
#define FUNCTION template <class T> __device__ __forceinline__
#define NAN_OF(T) ((T)__longlong_as_double(0x7ff8000000000000LL))
#define INF_OF(T) ((T)__longlong_as_double(0x7ff0000000000000LL))

template <class T> constexpr bool is_float = false;
template <> constexpr bool is_float<float> = true;
template <> constexpr bool is_float<double> = true;
template <class T> constexpr bool is_signed = (T)-1 < (T)0;

FUNCTION bool is_nan(T v) { return v != v; }
FUNCTION bool is_inf(T v) { if constexpr (is_float<T>) return isinf(v); else return false; }
FUNCTION bool is_finite(T v) { if constexpr (is_float<T>) return isfinite(v); else return true; }
FUNCTION bool to_bool(T v) { return v != (T)0; }
FUNCTION bool sign_bit(T v) { if constexpr (is_float<T>) return signbit(v); else return v < (T)0; }

FUNCTION T maximum(T a, T b) { return a != a || a > b ? a : b; }
FUNCTION T minimum(T a, T b) { return a != a || a < b ? a : b; }
FUNCTION T fmax_of(T a, T b) { return b != b || a >= b ? a : b; }
FUNCTION T fmin_of(T a, T b) { return b != b || a <= b ? a : b; }

FUNCTION T abs_of(T v) {
    if constexpr (is_float<T>) return fabs(v);
    else return v < (T)0 ? (T)-v : v;
}
FUNCTION T sign(T v) { return v > (T)0 ? (T)1 : v < (T)0 ? (T)-1 : (T)0; }
FUNCTION T conj(T v) { return v; }
FUNCTION T bitwise_not(T v) { return (T)~v; }
template <> __device__ __forceinline__ bool bitwise_not(bool v) { return !v; }

FUNCTION T floor_of(T v) { if constexpr (is_float<T>) return floor(v); else return v; }
FUNCTION T ceil_of(T v) { if constexpr (is_float<T>) return ceil(v); else return v; }
FUNCTION T trunc_of(T v) { if constexpr (is_float<T>) return trunc(v); else return v; }
FUNCTION T round_of(T v) { if constexpr (is_float<T>) return rint(v); else return v; }

// integers divided by 0 give 0, the smallest by -1 itself
FUNCTION T trunc_div(T a, T b) {
    return b == (T)0 ? (T)0 : is_signed<T> && b == (T)-1 ? (T)(0 - (u64)a) : (T)(a / b);
}
FUNCTION T fmod_of(T a, T b) {
    if constexpr (is_float<T>) return fmod(a, b);
    else return b == (T)0 || (is_signed<T> && b == (T)-1) ? (T)0 : (T)(a % b);
}
FUNCTION T remainder_of(T a, T b) {
    T found = fmod_of(a, b);
    return found != (T)0 && (found < (T)0) != (b < (T)0) ? (T)(found + b) : found;
}
FUNCTION T floor_div(T a, T b) {
    if constexpr (is_float<T>) {
        if (b == (T)0) return a / b;
        T left = fmod(a, b), quotient = (a - left) / b;
        if (left != (T)0 && (left < (T)0) != (b < (T)0)) quotient -= (T)1;
        if (quotient == (T)0) return copysign((T)0, a / b);
        T whole = floor(quotient);
        return quotient - whole > (T)0.5 ? whole + (T)1 : whole;
    } else {
        T quotient = trunc_div(a, b), left = fmod_of(a, b);
        return left != (T)0 && (left < (T)0) != (b < (T)0) ? (T)(quotient - (T)1) : quotient;
    }
}

FUNCTION T pow_of(T base, T exponent) {
    if constexpr (is_float<T>) return pow(base, exponent);
    else {
        const bool is_unit = base == (T)1 || (is_signed<T> && base == (T)-1);
        if (exponent < (T)0) return is_unit ? (exponent % 2 ? base : (T)1) : (T)0;
        T found = (T)1;
        for (; exponent; exponent = (T)(exponent >> 1)) {
            if (exponent & 1) found = (T)(found * base);
            base = (T)(base * base);
        }
        return found;
    }
}
FUNCTION T shift_left(T v, T by) { return by < (T)0 || by >= (T)(8 * sizeof(T)) ? (T)0 : (T)((u64)v << by); }
FUNCTION T shift_right(T v, T by) {
    constexpr int most = 8 * sizeof(T) - 1;
    return by < (T)0 || by > (T)most ? (T)(v < (T)0 ? -1 : 0) : (T)(v >> by);
}

FUNCTION T sigmoid_of(T v) { return (T)1 / ((T)1 + exp(-v)); }
FUNCTION T rsqrt_of(T v) { return rsqrt(v); }
FUNCTION T logaddexp(T a, T b) {
    if (a == b) return a + (T)0.69314718055994530942;
    T apart = a - b;
    return apart > (T)0 ? a + log1p(exp(-apart)) : apart <= (T)0 ? b + log1p(exp(apart)) : apart;
}
FUNCTION bool is_close(T a, T b, T rtol, T atol) {
    return a == b || (isfinite(a) && isfinite(b) && fabs(a - b) <= atol + fabs(rtol * b));
}
FUNCTION T nan_to_num(T v, T nan, T posinf, T neginf) {
    if constexpr (!is_float<T>) return v;
    else return v != v ? nan : v == INF_OF(T) ? posinf : v == -INF_OF(T) ? neginf : v;
}

FUNCTION T normal_cdf(T v) { return (erf(v * (T)0.70710678118654752440) + (T)1) * (T)0.5; }
FUNCTION T gelu_derivative(T v) { return exp(v * v * (T)-0.5) * (T)0.39894228040143267794 * v + normal_cdf(v); }
FUNCTION T tanh_gelu_argument(T v) {
    return (v * v * (T)(0.79788456080286535588 * 0.044715) + (T)0.79788456080286535588) * v;
}
// (1 + tanh(v)) / 2 is the sigmoid of 2 v
FUNCTION T tanh_normal_cdf(T v) { return sigmoid_of((T)2 * tanh_gelu_argument(v)); }
FUNCTION T tanh_gelu_derivative(T v) {
    const T share = tanh_normal_cdf(v);
    const T slope = (v * v * (T)(3 * 0.79788456080286535588 * 0.044715) + (T)0.79788456080286535588) * v;
    return share + (T)2 * share * ((T)1 - share) * slope;
}
FUNCTION T elu(T v, T scale, T negative_scale, T input_scale) {
    return v > (T)0 ? v * scale : expm1(minimum(v, (T)0) * input_scale) * negative_scale;
}
FUNCTION T clamp(T v, T low, T high) { return minimum(maximum(v, low), high); }
"""

TO_HALF = r"""
// For results that are rounded to half precision: functions of float to a relative error of 1e-5, without branches.
__device__ __forceinline__ float exp_approx(float power) {
    float found;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(found) : "f"(power * 1.44269504088896340736f));
    return found;
}
// of a number from 1 on, so that nothing but 0 comes of what is flushed
__device__ __forceinline__ float rcp_approx(float v) {
    float found;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(found) : "f"(v));
    return found;
}
__device__ __forceinline__ float sigmoid_of(float v) {
    float found;
    asm("rcp.approx.f32 %0, %1;" : "=f"(found) : "f"(1.0f + exp_approx(-v)));
    return found;
}
// the normal distribution's share above |v|, of exp(-v * v / 2): erfcx(|v| / sqrt(2)) / 2 as a polynomial in
// 1 / (1 + 0.425 |v| / sqrt(2)), fitted by weighted least squares to the relative error on [0, 10]
__device__ __forceinline__ float upper_tail(float v, float bell) {
    const float t = rcp_approx(1.0f + 0.30052038200428268f * fabsf(v));
    float sum = -0.07691622545520005f;
    sum = sum * t + 0.21398533203271122f;
    sum = sum * t - 0.01491882893897335f;
    sum = sum * t + 0.1434473120823355f;
    sum = sum * t + 0.11413980451610009f;
    sum = sum * t + 0.12026665681349628f;
    return sum * t * bell;
}
__device__ __forceinline__ float cdf_of_tail(float v, float upper) { return v > 0.0f ? 1.0f - upper : upper; }
__device__ __forceinline__ float normal_cdf(float v) {
    return cdf_of_tail(v, upper_tail(v, exp_approx(v * v * -0.5f)));
}
__device__ __forceinline__ float gelu_derivative(float v) {
    const float bell = exp_approx(v * v * -0.5f);
    return bell * 0.39894228040143267794f * v + cdf_of_tail(v, upper_tail(v, bell));
}
"""

GAMMA = r"""
// the derivative of lgamma: recurrence upwards, then the asymptotic series; by reflection where v is negative
__device__ double digamma_of(double v) {
    if (v == 0) return copysign(INF_OF(double), -v);
    double mirrored = 0;
    if (v < 0) {
        if (v == floor(v)) return NAN_OF(double);
        mirrored = 3.14159265358979323846 / tan(3.14159265358979323846 * (v - floor(v)));
        v = 1 - v;
    }
    double sum = 0;
    for (; v < 10; v += 1) sum -= 1 / v;
    double w = 1 / (v * v);
    double series = 1.0 / 132 - w * (691.0 / 32760 - w / 12);
    series = w * (1.0 / 12 - w * (1.0 / 120 - w * (1.0 / 252 - w * (1.0 / 240 - w * series))));
    return sum + (isinf(v) ? v : log(v) - 0.5 / v - series) - mirrored;
}
// the sum of (v + k) ** -s over all k from 0 on, v positive: 10 terms, then Euler and Maclaurin's formula
__device__ double hurwitz_zeta_positive(double s, double v) {
    double sum = 0;
    for (int k = 0; k < 10; ++k, v += 1) sum += pow(v, -s);
    double power = pow(v, -s);
    sum += v * power / (s - 1) + 0.5 * power;
    const double factors[] = {1.0 / 12, -1.0 / 720, 1.0 / 30240, -1.0 / 1209600, 1.0 / 47900160,
                              -691.0 / 1307674368000.0, 1.0 / 74724249600.0};
    double rising = s, w = power / v;
    for (int k = 0; k < 7; ++k) {
        sum += factors[k] * rising * w;
        rising *= (s + 2 * k + 1) * (s + 2 * k + 2);
        w /= v * v;
    }
    return sum;
}
__device__ double hurwitz_zeta(double s, double v) {
    if (v != v) return v;
    if (isinf(v)) return v > 0 ? 0 : NAN_OF(double);
    if (v > 0) return hurwitz_zeta_positive(s, v);
    double below = v - floor(v);
    if (below == 0) return INF_OF(double);
    double left = hurwitz_zeta_positive(s, 1 - below) - hurwitz_zeta_positive(s, 1 - v);
    return hurwitz_zeta_positive(s, below) + (fmod(s, 2.0) == 0 ? left : -left);
}
__device__ double polygamma_in_double(double v, int n) {
    if (n == 0) return digamma_of(v);
    double found = tgamma(n + 1.0) * hurwitz_zeta(n + 1.0, v);
    return n % 2 ? found : -found;
}
// trigamma of negative numbers by reflection, whose angle is rounded to T as PyTorch rounds it: finite at the poles
FUNCTION T polygamma_of(T v, int n) {
    if (n != 1 || !(v < (T)0)) return (T)polygamma_in_double(v, n);
    double ratio = 3.141592653589793 / sin((double)((T)3.141592653589793 * v));
    return (T)(ratio * ratio - polygamma_in_double(1 - (double)v, n));
}
"""
