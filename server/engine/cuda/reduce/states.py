"""CUDA text of what reductions keep while they run: how a state begins, takes an element, joins another, and ends.

A state's operations are static functions of a struct: ``init``, ``add`` (with the element's place, how many this state
has taken, itself included, and the operation's number), ``close`` (told how many it took), ``merge``, ``write`` (with
the number again). The kernels in ``reduce_text`` know nothing else of it. ``index_t`` is defined by whoever puts the
text together.
"""

from __future__ import annotations

STATES = r"""
#define DEV static __device__ __forceinline__

// an element as the type that the result has, in the type that the state is kept in
template <class T, class O, class A> struct cast_via { DEV A of(T v) { return cast<A>(cast<O>(v)); } };
template <class T, class A> struct cast_via<T, T, A> { DEV A of(T v) { return cast<A>(v); } };

template <class T> DEV T plus(T a, T b) { return a + b; }
template <class R> DEV complex_t<R> plus(complex_t<R> a, complex_t<R> b) { return {a.re + b.re, a.im + b.im}; }
template <class T> DEV T minus(T a, T b) { return a - b; }
template <class R> DEV complex_t<R> minus(complex_t<R> a, complex_t<R> b) { return {a.re - b.re, a.im - b.im}; }
template <class T> DEV T times(T a, T b) { return a * b; }
template <class R> DEV complex_t<R> times(complex_t<R> a, complex_t<R> b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
template <class T, class R> DEV T scaled(T a, R by) { return a * (T)by; }
template <class R> DEV complex_t<R> scaled(complex_t<R> a, R by) { return {a.re * by, a.im * by}; }
template <class T> DEV T divided(T a, double by) { return a / (T)by; }
template <class R> DEV complex_t<R> divided(complex_t<R> a, double by) { return {a.re / (R)by, a.im / (R)by}; }
template <class T> DEV T dot(T a, T b) { return a * b; }
template <class R> DEV R dot(complex_t<R> a, complex_t<R> b) { return a.re * b.re + a.im * b.im; }
template <class T> DEV T abs_of(T v) { return v < 0 ? -v : v; }
DEV float abs_of(float v) { return fabsf(v); }
DEV double abs_of(double v) { return fabs(v); }
DEV float abs_of(c64 v) { return hypotf(v.re, v.im); }
DEV double abs_of(c128 v) { return hypot(v.re, v.im); }
template <class T> DEV bool is_nan(T v) { return v != v; }

DEV float exp_of(float v) { return expf(v); }
DEV double exp_of(double v) { return exp(v); }
DEV float log_of(float v) { return logf(v); }
DEV double log_of(double v) { return log(v); }
DEV float sqrt_of(float v) { return sqrtf(v); }
DEV double sqrt_of(double v) { return sqrt(v); }
DEV float pow_of(float v, double p) { return powf(v, (float)p); }
DEV double pow_of(double v, double p) { return pow(v, p); }
DEV float rcp_of(float v) { float r; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v)); return r; }
DEV double rcp_of(double v) { return 1.0 / v; }

template <class T> struct lowest;
template <> struct lowest<float> { DEV float of() { return __int_as_float(0xff800000); } };
template <> struct lowest<double> { DEV double of() { return __longlong_as_double(0xfff0000000000000ll); } };
template <> struct lowest<i32> { DEV i32 of() { return (i32)0x80000000; } };
template <> struct lowest<i64> { DEV i64 of() { return (i64)0x8000000000000000ll; } };
template <class T> struct highest { DEV T of() { return -lowest<T>::of(); } };
template <> struct highest<i32> { DEV i32 of() { return 0x7fffffff; } };
template <> struct highest<i64> { DEV i64 of() { return 0x7fffffffffffffffll; } };

template <class T, class A, class F, class S = F> struct Whole {  // nothing to do when all elements are in
    typedef T In;
    typedef A Acc;
    typedef F First;  // the results' elements
    typedef S Second;
    DEV void close(Acc&, u32) {}
};

template <class T, class O, class A> struct Sum : Whole<T, A, O> {
    DEV A init() { return cast<A>(0); }
    DEV void add(A& a, T v, index_t, u32, double) { a = plus(a, cast_via<T, O, A>::of(v)); }
    DEV A merge(A a, A b) { return plus(a, b); }
    DEV void write(A a, double, O* out, O*) { *out = cast<O>(a); }
};
template <class T, class O, class A> struct Mean : Sum<T, O, A> {
    DEV void write(A a, double count, O* out, O*) { *out = cast<O>(divided(a, count)); }
};
template <class T, class O, class A> struct NanSum : Sum<T, O, A> {
    DEV void add(A& a, T v, index_t, u32, double) {
        A x = cast_via<T, O, A>::of(v);
        a = is_nan(x) ? a : plus(a, x);
    }
};
template <class T, class O, class A> struct Product : Whole<T, A, O> {
    DEV A init() { return cast<A>(1); }
    DEV void add(A& a, T v, index_t, u32, double) { a = times(a, cast_via<T, O, A>::of(v)); }
    DEV A merge(A a, A b) { return times(a, b); }
    DEV void write(A a, double, O* out, O*) { *out = cast<O>(a); }
};

template <class T, class O, bool ALL> struct AnyAll : Whole<T, u32, O> {
    DEV u32 init() { return ALL; }
    DEV void add(u32& a, T v, index_t, u32, double) { u32 is = cast<bool>(v); a = ALL ? a & is : a | is; }
    DEV u32 merge(u32 a, u32 b) { return ALL ? a & b : a | b; }
    DEV void write(u32 a, double, O* out, O*) { *out = cast<O>(a); }
};
template <class T, class O> struct NonZero : Whole<T, i64, O> {
    DEV i64 init() { return 0; }
    DEV void add(i64& a, T v, index_t, u32, double) { a += cast<bool>(v); }
    DEV i64 merge(i64 a, i64 b) { return a + b; }
    DEV void write(i64 a, double, O* out, O*) { *out = cast<O>(a); }
};

// a NaN is beyond any number
template <bool LARGEST, class A> DEV A extreme_of(A a, A b) {
    bool beyond = LARGEST ? b > a : b < a;
    return beyond || is_nan(b) ? b : a;
}
template <bool LARGEST> DEV float extreme_of(float a, float b) {
    float r;
    if (LARGEST) asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    else asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
template <class A, bool LARGEST> DEV A extreme_identity() { return LARGEST ? lowest<A>::of() : highest<A>::of(); }

template <class T, class A, bool LARGEST> struct Extreme : Whole<T, A, T> {
    DEV A init() { return extreme_identity<A, LARGEST>(); }
    DEV void add(A& a, T v, index_t, u32, double) { a = extreme_of<LARGEST>(a, cast<A>(v)); }
    DEV A merge(A a, A b) { return extreme_of<LARGEST>(a, b); }
    DEV void write(A a, double, T* out, T*) { *out = cast<T>(a); }
};

template <class A> struct Range { A low, high; };
template <class T, class A> struct Extremes : Whole<T, Range<A>, T> {
    DEV Range<A> init() { return {highest<A>::of(), lowest<A>::of()}; }
    DEV void add(Range<A>& a, T v, index_t, u32, double) {
        A x = cast<A>(v);
        a.low = extreme_of<false>(a.low, x);
        a.high = extreme_of<true>(a.high, x);
    }
    DEV Range<A> merge(Range<A> a, Range<A> b) {
        return {extreme_of<false>(a.low, b.low), extreme_of<true>(a.high, b.high)};
    }
    DEV void write(Range<A> a, double, T* low, T* high) { *low = cast<T>(a.low); *high = cast<T>(a.high); }
};

// the best and the first place that has it
const index_t NO_INDEX = (index_t)-1;
template <class A> struct ValueAndIndex { A value; index_t at; };
template <class T, class A, class F, bool LARGEST> struct IndexedExtreme : Whole<T, ValueAndIndex<A>, F, i64> {
    DEV bool beats(A b, A a) {
        bool beyond = LARGEST ? b > a : b < a;
        return beyond || (is_nan(b) && !is_nan(a));
    }
    DEV ValueAndIndex<A> init() { return {extreme_identity<A, LARGEST>(), NO_INDEX}; }
    DEV void add(ValueAndIndex<A>& a, T v, index_t at, u32 step, double) {
        A x = cast<A>(v);
        if (step == 1 || beats(x, a.value)) { a.value = x; a.at = at; }
    }
    DEV ValueAndIndex<A> merge(ValueAndIndex<A> a, ValueAndIndex<A> b) {
        if (a.at == NO_INDEX || b.at == NO_INDEX) return a.at == NO_INDEX ? b : a;
        if (beats(b.value, a.value)) return b;
        return beats(a.value, b.value) || a.at < b.at ? a : b;
    }
};
template <class T, class A, bool LARGEST> struct ExtremeWithIndex : IndexedExtreme<T, A, T, LARGEST> {
    DEV void write(ValueAndIndex<A> a, double, T* value, i64* at) { *value = cast<T>(a.value); *at = (i64)a.at; }
};
template <class T, class A, bool LARGEST> struct ArgExtreme : IndexedExtreme<T, A, i64, LARGEST> {
    DEV void write(ValueAndIndex<A> a, double, i64* at, i64*) { *at = (i64)a.at; }
};

// Welford's mean and sum of squared deviations; joined as Chan, Golub and LeVeque do
template <class M, class R> struct Moments { M mean; R squares, count; };
template <class T, class O, class M, class R, bool ROOT> struct Variance {
    typedef T In;
    typedef Moments<M, R> Acc;
    typedef O First;
    typedef O Second;
    DEV Acc init() { return {cast<M>(0), 0, 0}; }
    DEV void add(Acc& a, T v, index_t, u32 step, double) {
        M x = cast<M>(v), away = minus(x, a.mean);
        a.mean = plus(a.mean, scaled(away, rcp_of((R)step)));
        a.squares += dot(away, minus(x, a.mean));
    }
    DEV void close(Acc& a, u32 steps) { a.count = (R)steps; }
    DEV Acc merge(Acc a, Acc b) {
        if (b.count == 0) return a;
        if (a.count == 0) return b;
        R count = a.count + b.count, share = b.count / count;
        M away = minus(b.mean, a.mean);
        return {plus(a.mean, scaled(away, share)), a.squares + b.squares + dot(away, away) * (a.count * share), count};
    }
    DEV void write(Acc a, double left, O* out, O*) {
        R variance = a.squares / (R)left;
        *out = cast<O>(ROOT ? sqrt_of(variance) : variance);
    }
};

template <class A> struct ScaledSum { A largest, sum; };
template <class T, class O, class A> struct LogSumExp : Whole<T, ScaledSum<A>, O> {
    DEV ScaledSum<A> init() { return {lowest<A>::of(), 0}; }
    DEV void add(ScaledSum<A>& a, T v, index_t, u32, double) { a = merge(a, {cast_via<T, O, A>::of(v), 1}); }
    DEV ScaledSum<A> merge(ScaledSum<A> a, ScaledSum<A> b) {
        if (b.largest == a.largest) return {a.largest, a.sum + b.sum};
        bool grows = b.largest > a.largest;
        A factor = exp_of(grows ? a.largest - b.largest : b.largest - a.largest);
        return grows ? ScaledSum<A>{b.largest, a.sum * factor + b.sum}
                     : ScaledSum<A>{a.largest, a.sum + b.sum * factor};
    }
    DEV void write(ScaledSum<A> a, double, O* out, O*) { *out = cast<O>(a.largest + log_of(a.sum)); }
};

// C: the type that an element is converted to first; A: real, in which powers are summed
template <class T, class C, class O, class A> struct Norm1 : Whole<T, A, O> {
    DEV A init() { return 0; }
    DEV A size_of(T v) { return (A)abs_of(widen(cast<C>(v))); }
    DEV void add(A& a, T v, index_t, u32, double) { a += size_of(v); }
    DEV A merge(A a, A b) { return a + b; }
    DEV void write(A a, double, O* out, O*) { *out = cast<O>(a); }
};
template <class T, class C, class O, class A> struct Norm2 : Norm1<T, C, O, A> {
    DEV void add(A& a, T v, index_t, u32, double) { auto x = widen(cast<C>(v)); a += (A)dot(x, x); }
    DEV void write(A a, double, O* out, O*) { *out = cast<O>(sqrt_of(a)); }
};
template <class T, class C, class O, class A> struct NormP : Norm1<T, C, O, A> {
    DEV void add(A& a, T v, index_t, u32, double p) { a += pow_of(Norm1<T, C, O, A>::size_of(v), p); }
    DEV void write(A a, double p, O* out, O*) { *out = cast<O>(pow_of(a, 1 / p)); }
};
template <class T, class C, class O, class A, bool LARGEST> struct NormInf : Norm1<T, C, O, A> {
    DEV A init() { return LARGEST ? (A)0 : highest<A>::of(); }
    DEV void add(A& a, T v, index_t, u32, double) { a = extreme_of<LARGEST>(a, Norm1<T, C, O, A>::size_of(v)); }
    DEV A merge(A a, A b) { return extreme_of<LARGEST>(a, b); }
};
"""
