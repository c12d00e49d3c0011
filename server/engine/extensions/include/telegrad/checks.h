// What functions demand of tensors that they were given by name and place.
#pragma once

#include "functions.h"

namespace at {
using CheckedFrom = const char*;
struct TensorArg {
  const Tensor& tensor;
  const char* name;
  int pos;
  TensorArg(const Tensor& tensor, const char* name, int pos) : tensor(tensor), name(name), pos(pos) {}
  TensorArg(Tensor&&, const char*, int) = delete;  // it would be gone when it is checked
  const Tensor* operator->() const { return &tensor; }
  const Tensor& operator*() const { return tensor; }
};
std::ostream& operator<<(std::ostream& out, const TensorArg& arg);

// A check of two tensors, and of all of a list of them beside the first.
#define TELEGRAD_CHECK_PAIR(name)                                              \
  void check##name(CheckedFrom from, const TensorArg& a, const TensorArg& b);  \
  void checkAll##name(CheckedFrom from, ArrayRef<TensorArg> args);
TELEGRAD_CHECK_PAIR(SameType) TELEGRAD_CHECK_PAIR(SameSize) TELEGRAD_CHECK_PAIR(SameNumel) TELEGRAD_CHECK_PAIR(SameDim)
TELEGRAD_CHECK_PAIR(SameGPU)
#undef TELEGRAD_CHECK_PAIR

void checkDefined(CheckedFrom from, const TensorArg& t);
void checkContiguous(CheckedFrom from, const TensorArg& t);
void checkAllDefined(CheckedFrom from, ArrayRef<TensorArg> args);
void checkAllContiguous(CheckedFrom from, ArrayRef<TensorArg> args);
void checkDim(CheckedFrom from, const TensorArg& t, int64_t dim);
void checkDimRange(CheckedFrom from, const TensorArg& t, int64_t first, int64_t end);
void checkSize(CheckedFrom from, const TensorArg& t, IntArrayRef sizes);
void checkSize(CheckedFrom from, const TensorArg& t, int64_t dim, int64_t size);
void checkNumel(CheckedFrom from, const TensorArg& t, int64_t numel);
void checkScalarTypes(CheckedFrom from, const TensorArg& t, ArrayRef<ScalarType> types);
void checkScalarType(CheckedFrom from, const TensorArg& t, ScalarType type);
}  // namespace at
