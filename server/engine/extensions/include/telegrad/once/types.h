// What types.h and codec.h declare, compiled once for all extensions.
#pragma once

#include "../dispatch.h"

namespace c10 {
const char* toString(ScalarType type) {
  switch (type) {
#define TELEGRAD_NAME(_, name, number) \
  case ScalarType::name: return #name;
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_HALVES(TELEGRAD_NAME)
#undef TELEGRAD_NAME
    case ScalarType::ComplexHalf: return "ComplexHalf";
    case ScalarType::Float8_e5m2: return "Float8_e5m2";
    case ScalarType::Float8_e4m3fn: return "Float8_e4m3fn";
    default: return "Undefined";
  }
}
size_t elementSize(ScalarType type) {
  switch (type) {
#define TELEGRAD_SIZE(type, name, number) \
  case ScalarType::name: return sizeof(type);
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_HALVES(TELEGRAD_SIZE)
#undef TELEGRAD_SIZE
    case ScalarType::ComplexHalf: return 4;
    default: return 1;
  }
}
std::string_view TypeMeta::name() const {
  switch (type_) {
    case ScalarType::Byte: return "unsigned char";
    case ScalarType::Char: return "signed char";
    case ScalarType::Short: return "short int";
    case ScalarType::Int: return "int";
    case ScalarType::Long: return "long int";
    case ScalarType::Float: return "float";
    case ScalarType::Double: return "double";
    case ScalarType::Bool: return "bool";
    case ScalarType::Half: return "c10::Half";
    case ScalarType::BFloat16: return "c10::BFloat16";
    case ScalarType::ComplexFloat: return "c10::complex<float>";
    case ScalarType::ComplexDouble: return "c10::complex<double>";
    default: return toString(type_);
  }
}
Device::Device(const std::string& name) {
  const auto colon = name.find(':');
  const std::string kind = name.substr(0, colon);
  TORCH_CHECK(kind == "cpu" || kind == "cuda", "Invalid device string: '", name, "'");
  type_ = kind == "cpu" ? kCPU : kCUDA;
  if (colon != std::string::npos) index_ = static_cast<DeviceIndex>(std::stoi(name.substr(colon + 1)));
}
std::string Device::str() const {
  return (is_cpu() ? "cpu" : "cuda") + (has_index() ? ":" + std::to_string(index_) : std::string());
}
#define TELEGRAD_CONVERSION(type, name, number) \
  type Scalar::to##name() const { return to<type>(); }
AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_HALVES(TELEGRAD_CONVERSION)
#undef TELEGRAD_CONVERSION
bool Scalar::equal(const Scalar& other) const { return to<std::complex<double>>() == other.to<std::complex<double>>(); }
Scalar Scalar::operator-() const {
  if (isComplex()) return std::complex<double>(-real_, -imag_);
  return isFloatingPoint() ? Scalar(-real_) : Scalar(-integer_);
}

std::ostream& operator<<(std::ostream& out, ScalarType type) { return out << toString(type); }
std::ostream& operator<<(std::ostream& out, TypeMeta type) { return out << type.name(); }
std::ostream& operator<<(std::ostream& out, const Device& device) { return out << device.str(); }
std::ostream& operator<<(std::ostream& out, DeviceType type) { return out << (type == kCPU ? "cpu" : "cuda"); }
std::ostream& operator<<(std::ostream& out, MemoryFormat format) {
  static const char* names[] = {"Contiguous", "Preserve", "ChannelsLast", "ChannelsLast3d"};
  return out << names[static_cast<int>(format)];
}
std::ostream& operator<<(std::ostream& out, Layout layout) { return out << (layout == kStrided ? "Strided" : "Sparse"); }
std::ostream& operator<<(std::ostream& out, const Scalar& number) {
  return number.isFloatingPoint() ? out << number.toDouble() : out << number.toLong();
}
std::ostream& operator<<(std::ostream& out, const TensorOptions& options) {
  return out << "TensorOptions(dtype=" << options.dtype() << (options.has_dtype() ? "" : " (default)") << ", device="
             << options.device() << (options.has_device() ? "" : " (default)") << ", layout=Strided, requires_grad="
             << (options.requires_grad() ? "true" : "false (default)") << ", pinned_memory=false (default), memory_format=(nullopt))";
}
}  // namespace c10

namespace telegrad {
void refuse(const std::string& wanted) { throw c10::TypeError("expected " + wanted); }
void Codec<std::string>::put(Words& words, const std::string& text) { words.put_bytes(text.data(), text.size()); }
std::string Codec<std::string>::take(Reader& reader) {
if (reader.next() != STRING) refuse("str");
return reader.next_bytes();
}
void Codec<c10::Scalar>::put(Words& words, const c10::Scalar& number) {
if (number.isComplex()) return Codec<std::complex<double>>::put(words, number.to<std::complex<double>>());
if (number.isFloatingPoint()) return Codec<double>::put(words, number.toDouble());
words.put(number.isBoolean() ? BOOLEAN : INTEGER, number.toLong());
}
c10::Scalar Codec<c10::Scalar>::take(Reader& reader) {
switch (reader.next()) {
  case BOOLEAN: return c10::Scalar(reader.next() != 0);
  case INTEGER: return c10::Scalar(reader.next());
  case FLOAT: return c10::Scalar(reader.next_double());
  case COMPLEX: {
    const double real = reader.next_double();
    return c10::Scalar(std::complex<double>(real, reader.next_double()));
  }
  default: refuse("a number");
}
}
void Codec<c10::ScalarType>::put(Words& words, c10::ScalarType type) { words.put(DTYPE, static_cast<int64_t>(type)); }
c10::ScalarType Codec<c10::ScalarType>::take(Reader& reader) {
if (reader.next() != DTYPE) refuse("torch.dtype");
return static_cast<c10::ScalarType>(reader.next());
}
void Codec<c10::Device>::put(Words& words, const c10::Device& device) {
words.put(DEVICE, device.is_cuda());
words.put(device.is_cuda() && !device.has_index() ? context[CURRENT_DEVICE] : device.index());
}
c10::Device Codec<c10::Device>::take(Reader& reader) {
if (reader.peek() == STRING) return c10::Device(Codec<std::string>::take(reader));
if (reader.next() != DEVICE) refuse("torch.device");
const auto type = static_cast<c10::DeviceType>(reader.next());
return c10::Device(type, static_cast<c10::DeviceIndex>(reader.next()));
}
void refuse_type(const std::string& name, c10::ScalarType type) {
  throw c10::NotImplementedError(c10::str('"', name, "\" not implemented for '", c10::toString(type), "'"));
}
}  // namespace telegrad
