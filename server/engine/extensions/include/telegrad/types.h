// Types that tensors are described by: element types, devices, lists of sizes, numbers of any type, options.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "array_ref.h"
#include "errors.h"
#include "numbers.h"

// The types whose names, numbers and C++ types PyTorch's programs know; numbers that are missing here have no tensors.
#define AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_HALVES(_)                                                        \
  _(uint8_t, Byte, 0) _(int8_t, Char, 1) _(int16_t, Short, 2) _(int, Int, 3) _(int64_t, Long, 4)                 \
  _(at::Half, Half, 5) _(float, Float, 6) _(double, Double, 7) _(c10::complex<float>, ComplexFloat, 9)           \
  _(c10::complex<double>, ComplexDouble, 10) _(bool, Bool, 11) _(at::BFloat16, BFloat16, 15)                     \
  _(uint16_t, UInt16, 27) _(uint32_t, UInt32, 28) _(uint64_t, UInt64, 29)

namespace c10 {

using nullopt_t = std::nullopt_t;
inline constexpr auto nullopt = std::nullopt;
template <class T>
using optional = std::optional<T>;
using std::make_optional;
template <class T, class F>
T value_or_else(const std::optional<T>& given, F&& make) { return given ? *given : make(); }
using string_view = std::string_view;

enum class ScalarType : int8_t {
  Byte = 0, Char, Short, Int, Long, Half, Float, Double, ComplexHalf, ComplexFloat, ComplexDouble, Bool, BFloat16 = 15,
  Float8_e5m2 = 23, Float8_e4m3fn = 24, UInt16 = 27, UInt32, UInt64, Undefined = 45
};

template <class T>
struct CppTypeToScalarType;
}  // namespace c10

namespace at {
using c10::BFloat16;
using c10::Half;
using c10::ScalarType;
}  // namespace at

namespace c10 {
#define TELEGRAD_TYPE(type, name, number)                        \
  template <>                                                    \
  struct CppTypeToScalarType<type> {                             \
    static constexpr ScalarType value = ScalarType::name;        \
  };                                                             \
  constexpr ScalarType k##name = ScalarType::name;
AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_HALVES(TELEGRAD_TYPE)
#undef TELEGRAD_TYPE
template <>
struct CppTypeToScalarType<long long> : CppTypeToScalarType<int64_t> {};
template <>
struct CppTypeToScalarType<std::complex<float>> : CppTypeToScalarType<c10::complex<float>> {};
template <>
struct CppTypeToScalarType<std::complex<double>> : CppTypeToScalarType<c10::complex<double>> {};

constexpr ScalarType kUInt8 = ScalarType::Byte, kInt8 = ScalarType::Char, kInt16 = ScalarType::Short,
                     kInt32 = ScalarType::Int, kInt64 = ScalarType::Long, kFloat16 = ScalarType::Half,
                     kFloat32 = ScalarType::Float, kFloat64 = ScalarType::Double,
                     kComplexHalf = ScalarType::ComplexHalf, kComplex64 = ScalarType::ComplexFloat,
                     kComplex128 = ScalarType::ComplexDouble, kFloat8_e5m2 = ScalarType::Float8_e5m2,
                     kFloat8_e4m3fn = ScalarType::Float8_e4m3fn, kU8 = kUInt8, kI8 = kInt8, kI16 = kInt16, kI32 = kInt32,
                     kI64 = kInt64, kF16 = kFloat16, kF32 = kFloat32, kF64 = kFloat64, kCFloat32 = kComplex64,
                     kCFloat64 = kComplex128;

const char* toString(ScalarType type);
std::ostream& operator<<(std::ostream& out, ScalarType type);
size_t elementSize(ScalarType type);
// An element type as Tensor::dtype() has it: it is called as C++ calls it.
class TypeMeta {
 public:
  TypeMeta(ScalarType type) : type_(type) {}
  template <class T>
  static TypeMeta Make() { return CppTypeToScalarType<T>::value; }
  operator ScalarType() const { return type_; }
  ScalarType toScalarType() const { return type_; }
  size_t itemsize() const { return elementSize(type_); }
  std::string_view name() const;

 private:
  ScalarType type_;
};
inline bool operator==(TypeMeta a, TypeMeta b) { return a.toScalarType() == b.toScalarType(); }
inline bool operator!=(TypeMeta a, TypeMeta b) { return !(a == b); }
inline bool operator==(TypeMeta a, ScalarType b) { return a.toScalarType() == b; }
inline bool operator!=(TypeMeta a, ScalarType b) { return a.toScalarType() != b; }
inline bool operator==(ScalarType a, TypeMeta b) { return b == a; }
inline bool operator!=(ScalarType a, TypeMeta b) { return b != a; }
std::ostream& operator<<(std::ostream& out, TypeMeta type);
inline ScalarType typeMetaToScalarType(TypeMeta type) { return type; }
inline TypeMeta scalarTypeToTypeMeta(ScalarType type) { return type; }
inline std::optional<ScalarType> optTypeMetaToScalarType(std::optional<TypeMeta> type) {
  return type ? std::optional<ScalarType>(*type) : std::nullopt;
}
inline bool isFloatingType(ScalarType t) {
  return t == kHalf || t == kFloat || t == kDouble || t == kBFloat16 || t == kFloat8_e5m2 || t == kFloat8_e4m3fn;
}
inline bool isComplexType(ScalarType t) { return t == kComplexHalf || t == kComplexFloat || t == kComplexDouble; }
inline bool isIntegralType(ScalarType t, bool includeBool = false) {
  return t == kBool ? includeBool : !isFloatingType(t) && !isComplexType(t);
}

inline bool isReducedFloatingType(ScalarType t) { return t == kHalf || t == kBFloat16 || t == kFloat8_e5m2 || t == kFloat8_e4m3fn; }
inline bool isSignedType(ScalarType t) {
  return t != kByte && t != kUInt16 && t != kUInt32 && t != kUInt64 && t != kBool;
}
inline ScalarType toComplexType(ScalarType t) {
  return isComplexType(t) ? t : t == kDouble ? kComplexDouble : t == kHalf ? kComplexHalf : kComplexFloat;
}
inline ScalarType toRealValueType(ScalarType t) {
  return t == kComplexDouble ? kDouble : t == kComplexFloat ? kFloat : t == kComplexHalf ? kHalf : t;
}
// Whether elements of one type may become those of another in place.
inline bool canCast(ScalarType from, ScalarType to) {
  if (isComplexType(from) && !isComplexType(to)) return false;
  if (isFloatingType(from) && isIntegralType(to)) return false;
  return from == kBool || to != kBool;
}

enum class DeviceType : int8_t { CPU = 0, CUDA = 1, Meta = 14 };
constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA, kMeta = DeviceType::Meta;
using DeviceIndex = int8_t;
class Device {
 public:
  Device(DeviceType type, DeviceIndex index = -1) : type_(type), index_(index) {}
  Device(const std::string& name);
  Device(const char* name) : Device(std::string(name)) {}
  DeviceType type() const { return type_; }
  DeviceIndex index() const { return index_; }
  bool has_index() const { return index_ != -1; }
  bool is_cuda() const { return type_ == kCUDA; }
  bool is_cpu() const { return type_ == kCPU; }
  bool is_meta() const { return type_ == kMeta; }
  void set_index(DeviceIndex index) { index_ = index; }
  bool operator==(const Device& other) const { return type_ == other.type_ && index_ == other.index_; }
  bool operator!=(const Device& other) const { return !(*this == other); }
  std::string str() const;

 private:
  DeviceType type_ = kCPU;
  DeviceIndex index_ = -1;
};
std::ostream& operator<<(std::ostream& out, const Device& device);
std::ostream& operator<<(std::ostream& out, DeviceType type);

enum class MemoryFormat : int8_t { Contiguous, Preserve, ChannelsLast, ChannelsLast3d };
enum class Layout : int8_t { Strided, Sparse };
constexpr Layout kStrided = Layout::Strided, kSparse = Layout::Sparse;
std::ostream& operator<<(std::ostream& out, MemoryFormat format);
std::ostream& operator<<(std::ostream& out, Layout layout);

// A number of any type.
class Scalar {
 public:
  Scalar() : Scalar(int64_t(0)) {}
  Scalar(bool number) : kind_(telegrad::BOOLEAN), integer_(number) {}
  template <class T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, int> = 0>
  Scalar(T number) : kind_(telegrad::INTEGER), integer_(static_cast<int64_t>(number)) {}
  Scalar(SymInt number) : Scalar(static_cast<int64_t>(number)) {}
  Scalar(double number) : kind_(telegrad::FLOAT), real_(number) {}
  Scalar(float number) : Scalar(static_cast<double>(number)) {}
  Scalar(Half number) : Scalar(static_cast<float>(number)) {}
  Scalar(BFloat16 number) : Scalar(static_cast<float>(number)) {}
  template <class T>
  Scalar(c10::complex<T> number) : kind_(telegrad::COMPLEX), real_(number.real()), imag_(number.imag()) {}
  template <class T>
  Scalar(std::complex<T> number) : kind_(telegrad::COMPLEX), real_(number.real()), imag_(number.imag()) {}
  bool isFloatingPoint() const { return kind_ == telegrad::FLOAT; }
  bool isIntegral(bool includeBool = false) const {
    return kind_ == telegrad::INTEGER || (includeBool && isBoolean());
  }
  bool isBoolean() const { return kind_ == telegrad::BOOLEAN; }
  bool isComplex() const { return kind_ == telegrad::COMPLEX; }
  template <class T>
  T to() const {
    if constexpr (std::is_constructible_v<T, double, double> && !std::is_arithmetic_v<T>)
      return isFloatingPoint() || isComplex() ? T(real_, imag_) : T(static_cast<double>(integer_), 0.0);
    else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
      return T(to<float>());
    else
      return isFloatingPoint() || isComplex() ? static_cast<T>(real_) : static_cast<T>(integer_);
  }
#define TELEGRAD_CONVERSION(type, name, number) \
  type to##name() const;
  AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_HALVES(TELEGRAD_CONVERSION)
#undef TELEGRAD_CONVERSION
  bool isSymbolic() const { return false; }
  bool equal(const Scalar& other) const;
  Scalar operator-() const;
  ScalarType type() const {
    return isBoolean() ? kBool : isIntegral() ? kLong : isFloatingPoint() ? kDouble : kComplexDouble;
  }

 private:
  telegrad::Kind kind_;
  int64_t integer_ = 0;
  double real_ = 0, imag_ = 0;
};
std::ostream& operator<<(std::ostream& out, const Scalar& number);

// How a tensor is to be made; what is not set comes from a tensor that it is to be like, or from the defaults.
class TensorOptions {
 public:
  TensorOptions() = default;
  TensorOptions(ScalarType dtype) : dtype_(dtype) {}
  TensorOptions(TypeMeta dtype) : dtype_(dtype) {}
  TensorOptions(c10::Device device) : device_(device) {}
  TensorOptions(DeviceType type) : device_(c10::Device(type)) {}
  template <class T, std::enable_if_t<std::is_convertible_v<T, std::string>, int> = 0>
  TensorOptions(const T& device) : device_(c10::Device(std::string(device))) {}
  TensorOptions(Layout) {}
  TensorOptions(MemoryFormat format) : format_(format) {}
  TensorOptions dtype(std::optional<ScalarType> type) const { auto o = *this; o.dtype_ = type; return o; }
  template <class T>
  TensorOptions dtype() const { return dtype(CppTypeToScalarType<T>::value); }
  TensorOptions device(std::optional<c10::Device> device) const { auto o = *this; o.device_ = device; return o; }
  TensorOptions device(DeviceType type, DeviceIndex index = -1) const { return device(c10::Device(type, index)); }
  TensorOptions device_index(DeviceIndex index) const { return device(kCUDA, index); }
  TensorOptions requires_grad(bool requires_grad) const { auto o = *this; o.requires_grad_ = requires_grad; return o; }
  TensorOptions layout(std::optional<Layout>) const { return *this; }
  Layout layout() const { return kStrided; }
  bool is_sparse() const { return false; }
  bool pinned_memory() const { return false; }
  TensorOptions pinned_memory(std::optional<bool>) const { return *this; }
  TensorOptions memory_format(MemoryFormat format) const { auto o = *this; o.format_ = format; return o; }
  bool has_dtype() const { return dtype_.has_value(); }
  bool has_device() const { return device_.has_value(); }
  bool has_memory_format() const { return format_.has_value(); }
  int32_t device_index() const { return device().index(); }
  bool type_equal(const TensorOptions& other) const {
    return dtype() == other.dtype() && device().type() == other.device().type();
  }
  TensorOptions merge_memory_format(std::optional<MemoryFormat> format) const {
    auto o = *this;
    if (format) o.format_ = format;
    return o;
  }
  TypeMeta dtype() const { return dtype_.value_or(static_cast<ScalarType>(telegrad::context[telegrad::DEFAULT_DTYPE])); }
  c10::Device device() const { return device_.value_or(c10::Device(kCPU)); }
  bool requires_grad() const { return requires_grad_; }
  std::optional<ScalarType> dtype_opt() const { return dtype_; }
  std::optional<c10::Device> device_opt() const { return device_; }
  std::optional<MemoryFormat> memory_format_opt() const { return format_; }
  TensorOptions merge_in(const TensorOptions& over) const {
    auto o = *this;
    if (over.dtype_) o.dtype_ = over.dtype_;
    if (over.device_) o.device_ = over.device_;
    if (over.format_) o.format_ = over.format_;
    o.requires_grad_ = over.requires_grad_;
    return o;
  }

 private:
  std::optional<ScalarType> dtype_;
  std::optional<c10::Device> device_;
  std::optional<MemoryFormat> format_;
  bool requires_grad_ = false;
};
inline TensorOptions dtype(ScalarType type) { return TensorOptions(type); }
inline TensorOptions dtype(TypeMeta type) { return TensorOptions(type); }
std::ostream& operator<<(std::ostream& out, const TensorOptions& options);
inline TensorOptions layout(Layout) { return {}; }
inline TensorOptions device(Device device) { return TensorOptions(device); }
inline TensorOptions requires_grad(bool value = true) { return TensorOptions().requires_grad(value); }

}  // namespace c10

namespace at {
using namespace c10;
// Random numbers come from the session's generators, which manual_seed seeds; this stands for none of one's own.
struct Generator {
  bool defined() const { return false; }
};
using c10::Device;
using c10::Layout;
using c10::optional;
}  // namespace at
namespace caffe2 {
using c10::TypeMeta;
}  // namespace caffe2
