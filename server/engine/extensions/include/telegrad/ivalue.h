// A value of any type that PyTorch's dispatcher knows, as AutogradContext::saved_data keeps it.
#pragma once

#include <memory>
#include <unordered_map>

#include "containers.h"

namespace c10 {
class IValue {
 public:
  IValue() = default;
  IValue(std::nullopt_t) {}
  IValue(bool value) : kind_(BOOL), integer_(value) {}
  template <class T, std::enable_if_t<(std::is_integral_v<T> && !std::is_same_v<T, bool>) || std::is_enum_v<T>, int> = 0>
  IValue(T value) : kind_(INT), integer_(static_cast<int64_t>(value)) {}
  template <class T, std::enable_if_t<std::is_floating_point_v<T>, int> = 0>
  IValue(T value) : kind_(DOUBLE), real_(static_cast<double>(value)) {}
  IValue(const char* value) : IValue(std::string(value)) {}
  IValue(std::string value);
  IValue(at::Tensor value) : kind_(TENSOR), tensor_(std::move(value)) {}
  IValue(std::vector<at::Tensor> value);
  IValue(std::vector<int64_t> value);
  IValue(std::vector<double> value);
  IValue(IntArrayRef value);
  IValue(const Scalar& value);
  template <class... T>
  IValue(const std::tuple<T...>& values) {
    std::apply([&](const auto&... value) { *this = tuple_of({IValue(value)...}); }, values);
  }
  template <class T>
  IValue(const List<T>& value) : IValue(value.vec()) {}
  template <class T>
  IValue(const std::optional<T>& value) {
    if (value.has_value()) *this = IValue(*value);
  }

  bool isNone() const { return kind_ == NONE; }
  bool isInt() const { return kind_ == INT; }
  bool isDouble() const { return kind_ == DOUBLE; }
  bool isBool() const { return kind_ == BOOL; }
  bool isString() const { return kind_ == STRING; }
  bool isTensor() const { return kind_ == TENSOR; }
  bool isTensorList() const { return kind_ == TENSORS; }
  bool isIntList() const { return kind_ == INTS; }
  bool isDoubleList() const { return kind_ == DOUBLES; }
  bool isTuple() const { return kind_ == TUPLE; }
  bool isList() const { return isTensorList() || isIntList() || isDoubleList(); }
  bool isScalar() const { return isInt() || isDouble() || isBool(); }

  int64_t toInt() const { return expect(INT), integer_; }
  double toDouble() const { return isInt() ? static_cast<double>(integer_) : (expect(DOUBLE), real_); }
  bool toBool() const { return expect(BOOL), integer_ != 0; }
  const std::string& toStringRef() const { return held<std::string>(STRING); }
  std::string toStringView() const { return toStringRef(); }
  const at::Tensor& toTensor() const { return expect(TENSOR), tensor_; }
  const std::vector<at::Tensor>& toTensorVector() const { return held<std::vector<at::Tensor>>(TENSORS); }
  List<at::Tensor> toTensorList() const;
  const std::vector<int64_t>& toIntVector() const { return held<std::vector<int64_t>>(INTS); }
  List<int64_t> toIntList() const;
  DimVector toDimVector() const;
  const std::vector<double>& toDoubleVector() const { return held<std::vector<double>>(DOUBLES); }
  List<double> toDoubleList() const;
  class Elements {
   public:
    explicit Elements(const std::vector<IValue>& held) : held_(held) {}
    const std::vector<IValue>& elements() const { return held_; }
    size_t size() const { return held_.size(); }
    const Elements* operator->() const { return this; }

   private:
    const std::vector<IValue>& held_;
  };
  Elements toTuple() const { return Elements(held<std::vector<IValue>>(TUPLE)); }
  Elements toTupleRef() const { return toTuple(); }
  Scalar toScalar() const { return isInt() ? Scalar(toInt()) : isBool() ? Scalar(toBool()) : Scalar(toDouble()); }
  ScalarType toScalarType() const { return static_cast<ScalarType>(toInt()); }
  template <class T>
  T to() const {
    if constexpr (std::is_same_v<T, bool>) return toBool();
    else if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) return static_cast<T>(toInt());
    else if constexpr (std::is_floating_point_v<T>) return static_cast<T>(toDouble());
    else if constexpr (std::is_same_v<T, std::string>) return toStringRef();
    else if constexpr (std::is_same_v<T, at::Tensor>) return toTensor();
    else if constexpr (std::is_same_v<T, Scalar>) return toScalar();
    else if constexpr (std::is_same_v<T, std::vector<at::Tensor>>) return toTensorVector();
    else if constexpr (std::is_same_v<T, std::vector<double>>) return toDoubleVector();
    else return toIntVector();
  }
  template <class T>
  std::optional<T> toOptional() const {
    if (isNone()) return std::nullopt;
    return to<T>();
  }

 private:
  enum Kind { NONE, BOOL, INT, DOUBLE, STRING, TENSOR, TENSORS, INTS, DOUBLES, TUPLE };
  static IValue tuple_of(std::vector<IValue> elements);
  void expect(Kind kind) const;
  template <class T>
  const T& held(Kind kind) const {
    expect(kind);
    return *static_cast<const T*>(held_.get());
  }
  Kind kind_ = NONE;
  int64_t integer_ = 0;
  double real_ = 0;
  at::Tensor tensor_;
  std::shared_ptr<void> held_;
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
IValue pop(Stack& stack);
void drop(Stack& stack, size_t count);
}  // namespace jit
}  // namespace torch
