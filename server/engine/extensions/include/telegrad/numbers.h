// Element types: half precision and complex numbers, which host and device compute with alike.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <ostream>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define C10_HOST_DEVICE __host__ __device__
#define C10_DEVICE __device__
#define C10_HOST __host__
#else
#define C10_HOST_DEVICE
#define C10_DEVICE
#define C10_HOST
#endif
#define C10_LIKELY(condition) (__builtin_expect(static_cast<bool>(condition), 1))
#define C10_UNLIKELY(condition) (__builtin_expect(static_cast<bool>(condition), 0))
#define C10_ALWAYS_INLINE inline __attribute__((always_inline))
#define C10_EXPORT __attribute__((visibility("default")))
#define C10_UNUSED __attribute__((unused))
#define TORCH_API

namespace c10 {
namespace detail {
C10_HOST_DEVICE inline float float_of_bits(uint32_t bits) {
  float number;
  memcpy(&number, &bits, sizeof number);
  return number;
}
C10_HOST_DEVICE inline uint32_t bits_of_float(float number) {
  uint32_t bits;
  memcpy(&bits, &number, sizeof bits);
  return bits;
}

// Half precision has 5 bits of exponent and 10 of mantissa: scaling by powers of two lets float do denormals. A GPU has
// instructions for it.
C10_HOST_DEVICE inline float half_to_float(uint16_t half) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(half));
#else
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16, rest = static_cast<uint32_t>(half & 0x7fffu) << 13;
  if (rest >= 0x0f800000u) return float_of_bits(sign | rest | 0x7f800000u);
  return float_of_bits(sign | bits_of_float(float_of_bits(rest) * float_of_bits(0x77800000u)));
#endif
}
C10_HOST_DEVICE inline uint16_t float_to_half(float number) {
#ifdef __CUDA_ARCH__
  return __half_as_ushort(__float2half_rn(number));
#else
  uint32_t bits = bits_of_float(number);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (bits >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (bits < 0x38800000u)  // below the smallest normal number: float's own rounding does it at 0.5
    return static_cast<uint16_t>(sign | (bits_of_float(float_of_bits(bits) + 0.5f) - 0x3f000000u));
  return static_cast<uint16_t>(sign | ((bits + 0xfffu + ((bits >> 13) & 1u) - 0x38000000u) >> 13));
#endif
}
C10_HOST_DEVICE inline uint16_t float_to_bfloat16(float number) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __bfloat16_as_ushort(__float2bfloat16_rn(number));
#else
  const uint32_t bits = bits_of_float(number);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0u;
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
}
}  // namespace detail

struct alignas(2) Half {
  uint16_t x;
  struct from_bits_t {};
  static constexpr C10_HOST_DEVICE from_bits_t from_bits() { return {}; }
  Half() = default;
  constexpr C10_HOST_DEVICE Half(uint16_t bits, from_bits_t) : x(bits) {}
  C10_HOST_DEVICE inline Half(float number) : x(detail::float_to_half(number)) {}
  C10_HOST_DEVICE inline operator float() const { return detail::half_to_float(x); }
#ifdef __CUDACC__
  C10_HOST_DEVICE inline Half(const __half& number) { memcpy(&x, &number, sizeof x); }
  C10_HOST_DEVICE inline operator __half() const {
    __half number;
    memcpy(&number, &x, sizeof x);
    return number;
  }
#endif
};

struct alignas(2) BFloat16 {
  uint16_t x;
  struct from_bits_t {};
  static constexpr C10_HOST_DEVICE from_bits_t from_bits() { return {}; }
  BFloat16() = default;
  constexpr C10_HOST_DEVICE BFloat16(uint16_t bits, from_bits_t) : x(bits) {}
  C10_HOST_DEVICE inline BFloat16(float number) : x(detail::float_to_bfloat16(number)) {}
  C10_HOST_DEVICE inline operator float() const { return detail::float_of_bits(static_cast<uint32_t>(x) << 16); }
#ifdef __CUDACC__
  C10_HOST_DEVICE inline BFloat16(const __nv_bfloat16& number) { memcpy(&x, &number, sizeof x); }
  C10_HOST_DEVICE explicit inline operator __nv_bfloat16() const {
    __nv_bfloat16 number;
    memcpy(&number, &x, sizeof x);
    return number;
  }
#endif
};

// Arithmetic of two numbers of one type gives that type; with an int or a float it gives what that number makes it.
#define TELEGRAD_HALF_OPERATOR(T, op)                                                                              \
  C10_HOST_DEVICE inline T operator op(const T& a, const T& b) { return static_cast<float>(a) op static_cast<float>(b); } \
  C10_HOST_DEVICE inline T& operator op##=(T& a, const T& b) { return a = a op b; }                                \
  C10_HOST_DEVICE inline float operator op(T a, float b) { return static_cast<float>(a) op b; }                    \
  C10_HOST_DEVICE inline float operator op(float a, T b) { return a op static_cast<float>(b); }                    \
  C10_HOST_DEVICE inline float& operator op##=(float& a, const T& b) { return a = a op static_cast<float>(b); }    \
  C10_HOST_DEVICE inline double operator op(T a, double b) { return static_cast<double>(static_cast<float>(a)) op b; } \
  C10_HOST_DEVICE inline double operator op(double a, T b) { return a op static_cast<double>(static_cast<float>(b)); } \
  C10_HOST_DEVICE inline T operator op(T a, int b) { return a op static_cast<T>(static_cast<float>(b)); }          \
  C10_HOST_DEVICE inline T operator op(int a, T b) { return static_cast<T>(static_cast<float>(a)) op b; }          \
  C10_HOST_DEVICE inline T operator op(T a, int64_t b) { return a op static_cast<T>(static_cast<float>(b)); }      \
  C10_HOST_DEVICE inline T operator op(int64_t a, T b) { return static_cast<T>(static_cast<float>(a)) op b; }
#define TELEGRAD_HALF_OPERATORS(T)                                                                    \
  TELEGRAD_HALF_OPERATOR(T, +)                                                                        \
  TELEGRAD_HALF_OPERATOR(T, -)                                                                        \
  TELEGRAD_HALF_OPERATOR(T, *)                                                                        \
  TELEGRAD_HALF_OPERATOR(T, /)                                                                        \
  C10_HOST_DEVICE inline T operator-(const T& a) { return T(static_cast<uint16_t>(a.x ^ 0x8000u), T::from_bits()); } \
  C10_HOST_DEVICE inline bool operator<(const T& a, const T& b) { return static_cast<float>(a) < static_cast<float>(b); } \
  C10_HOST_DEVICE inline bool operator>(const T& a, const T& b) { return static_cast<float>(a) > static_cast<float>(b); }
TELEGRAD_HALF_OPERATORS(Half)
TELEGRAD_HALF_OPERATORS(BFloat16)

inline std::ostream& operator<<(std::ostream& out, const Half& number) { return out << static_cast<float>(number); }
inline std::ostream& operator<<(std::ostream& out, const BFloat16& number) { return out << static_cast<float>(number); }

template <class T>
struct alignas(sizeof(T) * 2) complex {
  using value_type = T;
  T real_ = T(0), imag_ = T(0);
  constexpr complex() = default;
  C10_HOST_DEVICE constexpr complex(const T& re, const T& im = T()) : real_(re), imag_(im) {}
  template <class U>
  C10_HOST_DEVICE constexpr complex(const complex<U>& other) : real_(static_cast<T>(other.real_)), imag_(static_cast<T>(other.imag_)) {}
  complex(const std::complex<T>& other) : real_(other.real()), imag_(other.imag()) {}
  operator std::complex<T>() const { return {real_, imag_}; }
  C10_HOST_DEVICE constexpr T real() const { return real_; }
  C10_HOST_DEVICE constexpr T imag() const { return imag_; }
  C10_HOST_DEVICE constexpr complex& operator+=(const complex& b) { return *this = *this + b; }
  C10_HOST_DEVICE constexpr complex& operator*=(const complex& b) { return *this = *this * b; }
  C10_HOST_DEVICE friend constexpr complex operator+(const complex& a, const complex& b) { return {a.real_ + b.real_, a.imag_ + b.imag_}; }
  C10_HOST_DEVICE friend constexpr complex operator-(const complex& a, const complex& b) { return {a.real_ - b.real_, a.imag_ - b.imag_}; }
  C10_HOST_DEVICE friend constexpr complex operator-(const complex& a) { return {-a.real_, -a.imag_}; }
  C10_HOST_DEVICE friend constexpr complex operator*(const complex& a, const complex& b) {
    return {a.real_ * b.real_ - a.imag_ * b.imag_, a.real_ * b.imag_ + a.imag_ * b.real_};
  }
  C10_HOST_DEVICE friend constexpr complex operator/(const complex& a, const complex& b) {
    const T norm = b.real_ * b.real_ + b.imag_ * b.imag_;
    return {(a.real_ * b.real_ + a.imag_ * b.imag_) / norm, (a.imag_ * b.real_ - a.real_ * b.imag_) / norm};
  }
  C10_HOST_DEVICE friend constexpr bool operator==(const complex& a, const complex& b) { return a.real_ == b.real_ && a.imag_ == b.imag_; }
  C10_HOST_DEVICE friend constexpr bool operator!=(const complex& a, const complex& b) { return !(a == b); }
};
}  // namespace c10

template <>
class std::numeric_limits<c10::Half> {
 public:
  static constexpr bool is_specialized = true, is_signed = true, is_integer = false, has_infinity = true;
  static constexpr int digits = 11;
  static constexpr C10_HOST_DEVICE c10::Half of(uint16_t bits) { return {bits, c10::Half::from_bits()}; }
  static constexpr C10_HOST_DEVICE c10::Half min() { return of(0x0400); }
  static constexpr C10_HOST_DEVICE c10::Half lowest() { return of(0xfbff); }
  static constexpr C10_HOST_DEVICE c10::Half max() { return of(0x7bff); }
  static constexpr C10_HOST_DEVICE c10::Half epsilon() { return of(0x1400); }
  static constexpr C10_HOST_DEVICE c10::Half infinity() { return of(0x7c00); }
  static constexpr C10_HOST_DEVICE c10::Half quiet_NaN() { return of(0x7e00); }
};
template <>
class std::numeric_limits<c10::BFloat16> {
 public:
  static constexpr bool is_specialized = true, is_signed = true, is_integer = false, has_infinity = true;
  static constexpr int digits = 8;
  static constexpr C10_HOST_DEVICE c10::BFloat16 of(uint16_t bits) { return {bits, c10::BFloat16::from_bits()}; }
  static constexpr C10_HOST_DEVICE c10::BFloat16 min() { return of(0x0080); }
  static constexpr C10_HOST_DEVICE c10::BFloat16 lowest() { return of(0xff7f); }
  static constexpr C10_HOST_DEVICE c10::BFloat16 max() { return of(0x7f7f); }
  static constexpr C10_HOST_DEVICE c10::BFloat16 epsilon() { return of(0x3c00); }
  static constexpr C10_HOST_DEVICE c10::BFloat16 infinity() { return of(0x7f80); }
  static constexpr C10_HOST_DEVICE c10::BFloat16 quiet_NaN() { return of(0x7fc0); }
};

// Functions of complex numbers, as there are for std::complex.
namespace std {
#define TELEGRAD_OF_COMPLEX(Result, name) \
  template <class T>                      \
  Result name(const c10::complex<T>& number) { return name(static_cast<std::complex<T>>(number)); }
TELEGRAD_OF_COMPLEX(T, abs) TELEGRAD_OF_COMPLEX(T, arg) TELEGRAD_OF_COMPLEX(T, norm) TELEGRAD_OF_COMPLEX(c10::complex<T>, conj)
TELEGRAD_OF_COMPLEX(c10::complex<T>, exp) TELEGRAD_OF_COMPLEX(c10::complex<T>, log) TELEGRAD_OF_COMPLEX(c10::complex<T>, sqrt)
TELEGRAD_OF_COMPLEX(c10::complex<T>, sin) TELEGRAD_OF_COMPLEX(c10::complex<T>, cos) TELEGRAD_OF_COMPLEX(c10::complex<T>, tanh)
#undef TELEGRAD_OF_COMPLEX
}  // namespace std
