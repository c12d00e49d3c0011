// AT_DISPATCH_*: runs a function with ``scalar_t`` for the element type that a tensor has.
#pragma once

#include "functions.h"

namespace telegrad {
inline c10::ScalarType type_of(c10::ScalarType type) { return type; }
inline c10::ScalarType type_of(const at::DeprecatedTypeProperties& type) { return type; }
}  // namespace telegrad

#define AT_DISPATCH_CASE(enumerator, ...)                                                  \
  case enumerator: {                                                                       \
    using scalar_t = typename ::telegrad::TypeOf<enumerator>::type;                        \
    return __VA_ARGS__();                                                                  \
  }
#define AT_DISPATCH_SWITCH(TYPE, NAME, ...)                                                \
  [&] {                                                                                    \
    const auto telegrad_type = ::telegrad::type_of(TYPE);                                  \
    switch (telegrad_type) {                                                               \
      __VA_ARGS__                                                                          \
      default:                                                                             \
        throw ::c10::NotImplementedError(                                                  \
            ::c10::str('"', NAME, "\" not implemented for '", ::c10::toString(telegrad_type), "'")); \
    }                                                                                      \
  }()

namespace telegrad {
template <c10::ScalarType type>
struct TypeOf;
#define TELEGRAD_TYPE_OF(cpp, name, number) \
  template <>                               \
  struct TypeOf<c10::ScalarType::name> {    \
    using type = cpp;                       \
  };
AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_HALVES(TELEGRAD_TYPE_OF)
#undef TELEGRAD_TYPE_OF
}  // namespace telegrad

#include "dispatch_cases.h"
#include "dispatch_lists.h"

#define AT_DISPATCH_INDEX_TYPES(TYPE, NAME, ...)                                                           \
  [&] {                                                                                                    \
    const auto telegrad_type = ::telegrad::type_of(TYPE);                                                  \
    if (telegrad_type == ::c10::kInt) {                                                                    \
      using index_t = int32_t;                                                                             \
      return __VA_ARGS__();                                                                                \
    }                                                                                                      \
    if (telegrad_type == ::c10::kLong) {                                                                   \
      using index_t = int64_t;                                                                             \
      return __VA_ARGS__();                                                                                \
    }                                                                                                      \
    throw ::c10::NotImplementedError(                                                                      \
        ::c10::str('"', NAME, "\" not implemented for '", ::c10::toString(telegrad_type), "'"));           \
  }()

namespace at {
template <class T>
struct AccumulateTypeOf { using type = T; };
template <>
struct AccumulateTypeOf<Half> { using type = float; };
template <>
struct AccumulateTypeOf<BFloat16> { using type = float; };
// What sums are computed in; on the CPU that is double for float.
template <class T, bool is_cuda>
using acc_type = std::conditional_t<
    std::is_integral_v<T> && !std::is_same_v<T, bool>, int64_t,
    std::conditional_t<!is_cuda && std::is_same_v<T, float>, double, typename AccumulateTypeOf<T>::type>>;
template <class T>
using opmath_type = typename AccumulateTypeOf<T>::type;

template <class F>
void parallel_for(int64_t begin, int64_t end, int64_t grain_size, const F& work) {
  if (begin >= end) return;
#ifdef _OPENMP
  const int64_t grain = grain_size > 0 ? grain_size : 1, parts = (end - begin + grain - 1) / grain;
#pragma omp parallel for schedule(static)
  for (int64_t part = 0; part < parts; ++part) work(begin + part * grain, std::min(end, begin + (part + 1) * grain));
#else
  (void)grain_size;
  work(begin, end);
#endif
}
inline int get_num_threads() { return 1; }
template <class A, class B>
constexpr C10_HOST_DEVICE auto ceil_div(A a, B b) { return (a + b - 1) / b; }
inline std::optional<Device> device_of(const Tensor& tensor) {
  return tensor.defined() ? std::optional<Device>(tensor.device()) : std::nullopt;
}
inline bool hasCUDA() { return telegrad::request(telegrad::HAS_CUDA, telegrad::Words())[0] != 0; }
}  // namespace at

namespace c10 {
class NoGradMode {
 public:
  explicit NoGradMode(bool enabled) : before_(set(enabled)) {}
  ~NoGradMode() { set(before_); }

 private:
  static bool set(bool enabled) {
    telegrad::Words words;
    words.put(enabled);
    return telegrad::request(telegrad::SET_GRAD_MODE, words)[0] != 0;
  }
  bool before_;
};
}  // namespace c10
namespace at {
struct AutoGradMode : c10::NoGradMode { using c10::NoGradMode::NoGradMode; };
struct NoGradGuard : c10::NoGradMode { NoGradGuard() : c10::NoGradMode(false) {} };
using AutoDispatchBelowADInplaceOrView = NoGradGuard;
using AutoDispatchBelowAutograd = NoGradGuard;
using AutoNonVariableTypeMode = NoGradGuard;
struct GradMode {
  static bool is_enabled() { return telegrad::context[telegrad::GRAD_MODE] != 0; }
};
}  // namespace at
namespace c10 {
using at::AutoGradMode;
using at::GradMode;
using at::NoGradGuard;
struct InferenceMode : NoGradMode {
  explicit InferenceMode(bool enabled = true) : NoGradMode(!enabled && at::GradMode::is_enabled()) {}
};
#ifndef TELEGRAD_WITH_CUDA
// Without CUDA there is one device, which is always the current one.
struct DeviceGuard {
  explicit DeviceGuard(Device) {}
};
struct OptionalDeviceGuard {
  OptionalDeviceGuard() = default;
  explicit OptionalDeviceGuard(std::optional<Device>) {}
};
#endif
}  // namespace c10
namespace torch::cuda {
inline bool is_available() { return at::hasCUDA(); }
}  // namespace torch::cuda
