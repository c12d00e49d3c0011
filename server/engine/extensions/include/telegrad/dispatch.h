// AT_DISPATCH_*: runs a function with ``scalar_t`` for the element type that a tensor has.
#pragma once

#include "functions.h"

namespace telegrad {
inline int below_autograd = 0;  // blocks that are entered
inline c10::ScalarType type_of(c10::ScalarType type) { return type; }
// Says that a function named ``name`` is not there for the type.
[[noreturn]] void refuse_type(const std::string& name, c10::ScalarType type);
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
        ::telegrad::refuse_type(NAME, telegrad_type);                                      \
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
    ::telegrad::refuse_type(NAME, telegrad_type);                                                          \
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
template <class T>
struct OpMathType : AccumulateTypeOf<T> {};
template <class T, DeviceType device>
using acc_type_device = acc_type<T, device == kCUDA>;
template <class T>
struct scalar_value_type { using type = T; };
template <class T>
struct scalar_value_type<c10::complex<T>> { using type = T; };
inline ScalarType toOpMathType(ScalarType type) { return type == kHalf || type == kBFloat16 ? kFloat : type; }
inline ScalarType toAccumulateType(ScalarType type, bool is_cuda) {
  if (isIntegralType(type)) return kLong;
  return !is_cuda && type == kFloat ? kDouble : toOpMathType(type);
}

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
inline int get_thread_num() { return 0; }
inline bool in_parallel_region() { return false; }
inline void set_num_threads(int) {}
namespace internal {
inline constexpr int64_t GRAIN_SIZE = 32768;
}  // namespace internal
template <class T, class F, class Combine>
T parallel_reduce(int64_t begin, int64_t end, int64_t, const T& ident, const F& work, const Combine&) {
  return begin < end ? work(begin, end, ident) : ident;
}
template <class A, class B>
constexpr C10_HOST_DEVICE auto ceil_div(A a, B b) { return (a + b - 1) / b; }
inline std::optional<Device> device_of(const Tensor& tensor) {
  return tensor.defined() ? std::optional<Device>(tensor.device()) : std::nullopt;
}
inline bool hasCUDA() { return telegrad::request(telegrad::HAS_CUDA, telegrad::Words())[0] != 0; }
inline bool hasMKL() { return false; }
// What a program may ask of the process that it runs in.
struct Context {
  static bool hasCUDA() { return at::hasCUDA(); }
  static bool hasMKL() { return false; }
};
inline Context& globalContext() {
  static Context one;
  return one;
}
}  // namespace at

namespace c10 {
class NoGradMode {
 public:
  explicit NoGradMode(bool enabled) : before_(set(enabled)) {}
  ~NoGradMode() { set(before_); }

  static bool set(bool enabled) {
    telegrad::Words words;
    words.put(enabled);
    return telegrad::request(telegrad::SET_GRAD_MODE, words)[0] != 0;
  }

 private:
  bool before_;
};
}  // namespace c10
namespace at {
struct AutoGradMode : c10::NoGradMode { using c10::NoGradMode::NoGradMode; };
struct NoGradGuard : c10::NoGradMode { explicit NoGradGuard(bool = true) : c10::NoGradMode(false) {} };
// What an operator's function for Autograd calls in this block is the function of the device.
struct AutoDispatchBelowAutograd : NoGradGuard {
  explicit AutoDispatchBelowAutograd(bool = true) { ++telegrad::below_autograd; }
  ~AutoDispatchBelowAutograd() { --telegrad::below_autograd; }
};
using AutoDispatchBelowADInplaceOrView = AutoDispatchBelowAutograd;
using AutoNonVariableTypeMode = AutoDispatchBelowAutograd;
struct GradMode {
  static bool is_enabled() { return telegrad::context[telegrad::GRAD_MODE] != 0; }
  static void set_enabled(bool enabled) { c10::NoGradMode::set(enabled); }
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
  explicit DeviceGuard(Device device) : device_(device) {}
  Device current_device() const { return device_; }
  Device original_device() const { return Device(kCPU); }

 private:
  Device device_;
};
struct OptionalDeviceGuard {
  OptionalDeviceGuard() = default;
  explicit OptionalDeviceGuard(std::optional<Device>) {}
  void reset_device(Device) {}
};
#endif
}  // namespace c10
namespace c10 {
namespace impl {
template <ScalarType type>
using ScalarTypeToCPPType = telegrad::TypeOf<type>;
template <ScalarType type>
using ScalarTypeToCPPTypeT = typename telegrad::TypeOf<type>::type;
}  // namespace impl
inline TypeMeta get_default_dtype() { return static_cast<ScalarType>(telegrad::context[telegrad::DEFAULT_DTYPE]); }
inline ScalarType get_default_dtype_as_scalartype() { return get_default_dtype(); }
}  // namespace c10
namespace torch::cuda {
inline bool is_available() { return at::hasCUDA(); }
}  // namespace torch::cuda
