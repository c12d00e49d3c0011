// A value of any type that PyTorch's dispatcher knows, as AutogradContext::saved_data keeps it.
#pragma once

#include <unordered_map>
#include <variant>

#include "containers.h"

namespace c10 {
class IValue {
 public:
  using Tuple = std::shared_ptr<std::vector<IValue>>;
  IValue() = default;
  IValue(std::nullopt_t) {}
  IValue(bool value) : held_(value) {}
  template <class T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, int> = 0>
  IValue(T value) : held_(static_cast<int64_t>(value)) {}
  template <class T, std::enable_if_t<std::is_floating_point_v<T>, int> = 0>
  IValue(T value) : held_(static_cast<double>(value)) {}
  template <class T, std::enable_if_t<std::is_enum_v<T>, int> = 0>
  IValue(T value) : held_(static_cast<int64_t>(value)) {}
  IValue(const char* value) : held_(std::string(value)) {}
  IValue(std::string value) : held_(std::move(value)) {}
  IValue(at::Tensor value) : held_(std::move(value)) {}
  IValue(std::vector<at::Tensor> value) : held_(std::move(value)) {}
  IValue(std::vector<int64_t> value) : held_(std::move(value)) {}
  IValue(std::vector<double> value) : held_(std::move(value)) {}
  IValue(IntArrayRef value) : held_(std::vector<int64_t>(value.begin(), value.end())) {}
  template <class... T>
  IValue(const std::tuple<T...>& values) {
    std::apply([&](const auto&... value) { held_ = std::make_shared<std::vector<IValue>>(std::vector<IValue>{IValue(value)...}); }, values);
  }
  template <class T>
  IValue(const List<T>& value) : IValue(value.vec()) {}
  template <class T>
  IValue(const std::optional<T>& value) {
    if (value.has_value()) *this = IValue(*value);
  }

  bool isNone() const { return std::holds_alternative<std::monostate>(held_); }
  bool isInt() const { return std::holds_alternative<int64_t>(held_); }
  bool isDouble() const { return std::holds_alternative<double>(held_); }
  bool isBool() const { return std::holds_alternative<bool>(held_); }
  bool isString() const { return std::holds_alternative<std::string>(held_); }
  bool isTensor() const { return std::holds_alternative<at::Tensor>(held_); }
  bool isTensorList() const { return std::holds_alternative<std::vector<at::Tensor>>(held_); }
  bool isIntList() const { return std::holds_alternative<std::vector<int64_t>>(held_); }
  bool isTuple() const { return std::holds_alternative<Tuple>(held_); }
  bool isList() const { return isTensorList() || isIntList() || isDoubleList(); }
  bool isScalar() const { return isInt() || isDouble() || isBool(); }
  bool isDoubleList() const { return std::holds_alternative<std::vector<double>>(held_); }

  int64_t toInt() const { return as<int64_t>("Int"); }
  double toDouble() const { return isInt() ? static_cast<double>(toInt()) : as<double>("Double"); }
  bool toBool() const { return as<bool>("Bool"); }
  const std::string& toStringRef() const { return as<std::string>("String"); }
  std::string toStringView() const { return toStringRef(); }
  const at::Tensor& toTensor() const { return as<at::Tensor>("Tensor"); }
  std::vector<at::Tensor> toTensorVector() const { return as<std::vector<at::Tensor>>("TensorList"); }
  List<at::Tensor> toTensorList() const { return toTensorVector(); }
  std::vector<int64_t> toIntVector() const { return as<std::vector<int64_t>>("IntList"); }
  List<int64_t> toIntList() const { return toIntVector(); }
  DimVector toDimVector() const { return DimVector(toIntVector()); }
  std::vector<double> toDoubleVector() const { return as<std::vector<double>>("DoubleList"); }
  List<double> toDoubleList() const { return toDoubleVector(); }
  class Elements {
   public:
    explicit Elements(const std::vector<IValue>& held) : held_(held) {}
    const std::vector<IValue>& elements() const { return held_; }
    size_t size() const { return held_.size(); }
    const Elements* operator->() const { return this; }

   private:
    const std::vector<IValue>& held_;
  };
  Elements toTuple() const { return Elements(*as<Tuple>("Tuple")); }
  Elements toTupleRef() const { return toTuple(); }
  Scalar toScalar() const { return isInt() ? Scalar(toInt()) : isBool() ? Scalar(toBool()) : Scalar(toDouble()); }
  ScalarType toScalarType() const { return static_cast<ScalarType>(toInt()); }
  template <class T>
  T to() const {
    if constexpr (std::is_same_v<T, bool>) return toBool();
    else if constexpr (std::is_enum_v<T>) return static_cast<T>(toInt());
    else if constexpr (std::is_integral_v<T>) return static_cast<T>(toInt());
    else if constexpr (std::is_floating_point_v<T>) return static_cast<T>(toDouble());
    else return as<T>("value of this type");
  }
  template <class T>
  std::optional<T> toOptional() const {
    if (isNone()) return std::nullopt;
    return to<T>();
  }

 private:
  template <class T>
  const T& as(const char* name) const {
    const T* value = std::get_if<T>(&held_);
    TORCH_CHECK(value != nullptr, "IValue: Expected ", name, " but got a value of another type");
    return *value;
  }
  std::variant<std::monostate, bool, int64_t, double, std::string, at::Tensor, std::vector<at::Tensor>,
               std::vector<int64_t>, std::vector<double>, Tuple>
      held_;
};
}  // namespace c10
namespace at {
using c10::IValue;
}
namespace torch {
using c10::Dict;
using c10::List;
namespace jit {
using c10::IValue;
// What functions take from, and leave on, as the dispatcher calls them without types.
using Stack = std::vector<IValue>;
template <class... T>
void push(Stack& stack, const T&... values) { (stack.emplace_back(values), ...); }
inline IValue pop(Stack& stack) {
  IValue last = std::move(stack.back());
  stack.pop_back();
  return last;
}
inline void drop(Stack& stack, size_t count) { stack.resize(stack.size() - count); }
}  // namespace jit
}  // namespace torch
