// What ivalue.h declares, compiled once for all extensions.
#pragma once

#include "../ivalue.h"

namespace c10 {
#define TELEGRAD_HELD(type, kind) \
  IValue::IValue(type value) : kind_(kind), held_(std::make_shared<type>(std::move(value))) {}
TELEGRAD_HELD(std::string, STRING) TELEGRAD_HELD(std::vector<at::Tensor>, TENSORS)
TELEGRAD_HELD(std::vector<int64_t>, INTS) TELEGRAD_HELD(std::vector<double>, DOUBLES)
#undef TELEGRAD_HELD
IValue::IValue(IntArrayRef value) : IValue(value.vec()) {}
IValue::IValue(const Scalar& value) {
  if (value.isBoolean()) *this = IValue(value.to<bool>());
  else if (value.isIntegral()) *this = IValue(value.toLong());
  else *this = IValue(value.toDouble());
}
IValue IValue::tuple_of(std::vector<IValue> elements) {
  IValue made;
  made.kind_ = TUPLE;
  made.held_ = std::make_shared<std::vector<IValue>>(std::move(elements));
  return made;
}
void IValue::expect(Kind kind) const {
  static const char* names[] = {"None", "Bool", "Int", "Double", "String", "Tensor", "TensorList", "IntList", "DoubleList", "Tuple"};
  TORCH_CHECK(kind_ == kind, "IValue: Expected ", names[kind], " but got ", names[kind_]);
}
List<at::Tensor> IValue::toTensorList() const { return toTensorVector(); }
List<int64_t> IValue::toIntList() const { return toIntVector(); }
List<double> IValue::toDoubleList() const { return toDoubleVector(); }
DimVector IValue::toDimVector() const { return DimVector(toIntVector()); }
}  // namespace c10

namespace torch::jit {
IValue pop(Stack& stack) {
  IValue last = std::move(stack.back());
  stack.pop_back();
  return last;
}
void drop(Stack& stack, size_t count) { stack.resize(stack.size() - count); }
}  // namespace torch::jit
